"""Options of sessions and of runs, as programs set them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from arenite.errors import InvalidArgument, NotSupported
from arenite.onnxruntime.environment import warn_once


class GraphOptimizationLevel(IntEnum):
    """Taken, and without meaning here: all that is known is done, and changes no result."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Taken, and without meaning here: what can run side by side does."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Taken, and without meaning here: the plan decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1


#: Entries of a configuration that mean nothing here, by how they begin: what they ask for is done
#: anyway, or is about parts that are not there.
_TAKEN_ENTRIES = (
    "session.disable_prepacking",
    "session.use_env_allocators",
    "session.use_device_allocator_for_initializers",
    "session.set_denormal_as_zero",
    "session.intra_op.",
    "session.inter_op.",
    "session.dynamic_block_base",
    "session.force_spinning_stop",
    "session.load_model_format",
    "session.qdq",
    "session.disable_quant_qdq",
    "session.enable_quant_qdq_cleanup",
    "session.disable_cpu_ep_fallback",
    "optimization.",
    "memory.",
    "mlas.",
)


@dataclass(slots=True)
class SessionOptions:
    """`intra_op_num_threads` is how many threads a run has; 0: as many as there are CPUs."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    _entries: dict[str, str] = field(default_factory=dict, repr=False)
    #: Of named sizes of inputs.
    _sizes: dict[str, int] = field(default_factory=dict, repr=False)
    _providers: list[str] = field(default_factory=list, repr=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Taken; one that nobody here knows warns once."""
        self._entries[str(key)] = str(value)
        if not str(key).startswith(_TAKEN_ENTRIES):
            warn_once(f"the session option {key!r} is not known to Arenite, and ignored")

    def get_session_config_entry(self, key: str) -> str:
        """What was set."""
        if key not in self._entries:
            raise InvalidArgument(f"there is no entry {key!r}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """A named size of the inputs is this number in all runs."""
        self._sizes[str(name)] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Denotations of axes are not read: warns once."""
        warn_once("sizes by denotation are not known to Arenite, and ignored; give their names")

    def add_provider(self, name: str, options: dict[str, str] | None = None) -> None:
        """One that sessions run on, before those that they name themselves."""
        self._providers.append(name)

    def has_providers(self) -> bool:
        """Whether providers were added."""
        return bool(self._providers)

    def add_initializer(self, name: str, value: object) -> None:
        """Refused: weights are those of the file."""
        raise NotSupported(f"initializer {name!r} can't be replaced: weights are those of the file")

    def add_external_initializers(self, names: object, values: object) -> None:
        """Refused: weights are those of the file."""
        raise NotSupported("initializers can't be replaced: weights are those of the file")

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: operators in libraries are written for ONNX Runtime's own memory."""
        raise NotSupported(f"{path!r} holds operators for ONNX Runtime, which can't be called here")

    def told(self) -> None:
        """Warn of what was asked for and is not done."""
        if self.enable_profiling:
            warn_once(
                "enable_profiling writes no file here; arenite.load(...).compile().profile(...) is "
                "a table of kernels with their times"
            )
        if self.optimized_model_filepath:
            warn_once("optimized_model_filepath is ignored: programs are kept in Arenite's cache")

    @property
    def threads(self) -> int | None:
        """How many threads are asked for; None: as many as there are CPUs."""
        n_threads = int(self.intra_op_num_threads)
        return None if n_threads <= 0 else n_threads


@dataclass(slots=True)
class RunOptions:
    """Of one run. `terminate` ends it before it begins."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    training_mode: bool = False
    _entries: dict[str, str] = field(default_factory=dict, repr=False)

    def add_run_config_entry(self, key: str, value: Any) -> None:
        """Taken; one that nobody here knows warns once."""
        self._entries[str(key)] = str(value)
        if not str(key).startswith("memory."):
            warn_once(f"the run option {key!r} is not known to Arenite, and ignored")

    def get_run_config_entry(self, key: str) -> str:
        """What was set."""
        if key not in self._entries:
            raise InvalidArgument(f"there is no entry {key!r}")
        return self._entries[key]

"""InferenceSession: a model, compiled, with ONNX Runtime's interface."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arenite.errors import DeviceUnavailable, TypeMismatch
from arenite.frontends.onnx.description import Port
from arenite.frontends.onnx.types import TensorType
from arenite.model import Model
from arenite.onnxruntime.capi.onnxruntime_pybind11_state import (
    InvalidArgument,
    RuntimeException,
    translated,
)
from arenite.onnxruntime.environment import (
    CPU,
    DEVICES,
    WEBGPU,
    get_all_providers,
    get_available_providers,
    warn_once,
)
from arenite.onnxruntime.options import RunOptions, SessionOptions
from arenite.onnxruntime.values import IOBinding, OrtValue, type_name

#: What ONNX Runtime says of a model that has no version.
_NO_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or an output. Of sizes that a file does not know the name, or None."""

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a file says about itself."""

    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


class InferenceSession:
    """A model to run: from a path, or from the bytes of a file.

    It runs on the CPU, or on WebGPU where `providers` name "WebGpuExecutionProvider" before any
    other that is here; what the device does not do then runs on the CPU. A provider that is not
    here warns once, WebGPU on a machine without it too. Options of providers change nothing.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        if not isinstance(self._options, SessionOptions):
            kind = type(sess_options)
            raise TypeMismatch(
                f"sess_options are SessionOptions of arenite.onnxruntime, not {kind.__module__}."
                f"{kind.__qualname__}"
            )
        self._options.told()
        for name in options:
            warn_once(f"the option {name!r} of a session is not known to Arenite, and ignored")
        is_data = isinstance(path_or_bytes, bytes | bytearray | memoryview)
        if not is_data and not isinstance(path_or_bytes, str | os.PathLike):
            raise TypeMismatch(f"a model is a path or bytes, not {type(path_or_bytes).__name__}")
        with translated():
            if isinstance(path_or_bytes, str | os.PathLike):
                self._model = Model.open(path_or_bytes)
            else:
                self._model = Model.of_bytes(bytes(path_or_bytes))
        self._outputs = self._model.outputs.names
        self._compile_for(_provider([*self._options._providers, *(providers or ())]))

    def _compile_for(self, provider: str) -> None:
        self._provider = provider
        options: dict[str, Any] = {**self._options._sizes, "device": DEVICES[provider]}
        with translated():
            self._program = self._model.compile(threads=self._options.threads, **options)

    # Running.

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs that are named, or all of them, in order."""
        if isinstance(output_names, str):
            raise TypeMismatch(f"outputs are named in a list: [{output_names!r}]")
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise TypeMismatch(f"run_options are RunOptions, not {type(run_options).__name__}")
        names = output_names or self._outputs
        for name in names:
            if name not in self._outputs:
                raise InvalidArgument(
                    f"there is no output {name!r}; there are {', '.join(self._outputs)}"
                )
        if run_options is not None and run_options.terminate:
            raise RuntimeException("the run was ended before it began: terminate is set")
        if not isinstance(input_feed, Mapping):
            raise InvalidArgument(f"inputs are a dict by name, not {type(input_feed).__name__}")
        with translated():
            results = self._program(input_feed)
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run on another thread; `callback(results, user_data, error)` hears of the end."""

        def work() -> None:
            try:
                results: list[Any] = self.run(output_names, input_feed, run_options)
                error = ""
            except Exception as problem:
                results, error = [], str(problem)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with OrtValues."""
        feed = {name: value.content for name, value in input_dict_ort_values.items()}
        return [OrtValue(one) for one in self.run(output_names, feed, run_options)]

    def io_binding(self) -> IOBinding:
        """To bind inputs and outputs one by one."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound."""
        iobinding.run(run_options)

    # What it is.

    def get_inputs(self) -> list[NodeArg]:
        """What a run needs."""
        return [self._argument(one) for one in self._model.description.inputs if one.is_required]

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives."""
        return [self._argument(one) for one in self._model.description.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value in the file, and need not be given."""
        inputs = self._model.description.inputs
        return [self._argument(one) for one in inputs if not one.is_required]

    def _argument(self, port: Port) -> NodeArg:
        shape = list(port.type.shape or ()) if isinstance(port.type, TensorType) else []
        fixed = self._options._sizes
        shape = [fixed.get(one, one) if isinstance(one, str) else one for one in shape]
        return NodeArg(port.name, type_name(port.type), shape)

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself."""
        told = self._model.description
        return ModelMetadata(
            custom_metadata_map=dict(told.more),
            description=told.text,
            domain=told.domain,
            graph_description=told.graph_text,
            graph_name=told.graph_name,
            producer_name=told.producer_name,
            version=_NO_VERSION if told.version is None else told.version,
        )

    def get_session_options(self) -> SessionOptions:
        """Those it was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """What it runs on, and what takes what that does not do."""
        return [*dict.fromkeys((self._provider, CPU))]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None are needed."""
        return {name: {} for name in self.get_providers()}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, dict[str, Any]]],
        provider_options: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Run on others from now on; one that is not here warns once."""
        provider, before = _provider(providers), self._program
        if provider != self._provider:
            self._compile_for(provider)
            before.close()

    def enable_fallback(self) -> None:
        """There is nothing to fall back from."""

    def disable_fallback(self) -> None:
        """There is nothing to fall back to."""

    def get_profiling_start_time_ns(self) -> int:
        """There is no profile, and so no start of one."""
        return 0

    def end_profiling(self) -> str:
        """The name of a file; none is written."""
        return ""


def _provider(providers: Sequence[str | tuple[str, dict[str, Any]]]) -> str:
    """The first that is here, or the CPU; what is not here warns."""
    found = None
    for one in providers:
        name = one[0] if isinstance(one, tuple) and one else one
        if name not in get_all_providers():
            warn_once(
                f"Specified provider {name!r} is not in available provider names. "
                f"Available providers: {', '.join(get_available_providers())!r}"
            )
        elif found is None and (name == CPU or _has_webgpu()):
            found = name
    return found or CPU


def _has_webgpu() -> bool:
    from arenite import device

    try:
        device.get(DEVICES[WEBGPU])
    except DeviceUnavailable as reason:
        warn_once(f"{WEBGPU} is not available: {reason}")
        return False
    return True

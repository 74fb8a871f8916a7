"""What programs ask the module about the machine, and set for the whole process."""

from __future__ import annotations

import logging
import warnings
from functools import cache

from arenite.errors import DeviceUnavailable, InvalidArgument

CPU, WEBGPU = "CPUExecutionProvider", "WebGpuExecutionProvider"
#: What a session of each runs on; of those that a session names, the first decides.
DEVICES = {WEBGPU: "webgpu", CPU: "cpu"}
#: That of ONNX Runtime whose interface this follows.
INTERFACE_VERSION = "1.31.0"

#: By ONNX Runtime's severities: verbose, info, warning, error, fatal.
_LEVELS = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)
_told: set[str] = set()


def warn_once(message: str) -> None:
    """A warning that a process sees once, however many sessions it opens."""
    if message not in _told:
        _told.add(message)
        warnings.warn(message, UserWarning, stacklevel=4)


def get_available_providers() -> list[str]:
    """What sessions can run on, the quickest first: WebGPU where there is a GPU. A session that
    names it takes an adapter that is a CPU too."""
    return [WEBGPU, CPU] if _has_gpu() else [CPU]


@cache
def _has_gpu() -> bool:
    from arenite.device.webgpu_adapters import adapters_for, quiet_wayland

    try:
        with quiet_wayland():
            return any(one.info["adapter_type"] != "CPU" for one in adapters_for("webgpu"))
    except DeviceUnavailable:
        return False


def get_all_providers() -> list[str]:
    """What sessions can run on where a machine has it."""
    return [*DEVICES]


def get_device() -> str:
    """What sessions run on that name no provider."""
    return "CPU"


def get_version_string() -> str:
    """The version of ONNX Runtime's interface that is followed."""
    return INTERFACE_VERSION


def get_build_info() -> str:
    """Who runs the models."""
    return "Arenite, with the interface of ONNX Runtime"


def set_default_logger_severity(severity: int) -> None:
    """From 0, everything, to 4, what ends a run: what the logger `arenite` lets through."""
    if type(severity) is not int or not 0 <= severity < len(_LEVELS):
        raise InvalidArgument(f"a severity is 0 to {len(_LEVELS) - 1}, not {severity!r}")
    logging.getLogger("arenite").setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Taken, and without meaning here: severities alone decide."""


def set_seed(seed: int) -> None:
    """Taken, and without meaning here: random operators give the same numbers in every process, by
    the seeds of their files."""
    warn_once("set_seed changes nothing: random operators take their seeds from the model")


def enable_telemetry_events() -> None:
    """Nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Nothing is ever sent."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """There are no libraries to load."""


def has_collective_ops() -> bool:
    """Whether runs may be spread over processes: never."""
    return False

"""GPUs that this machine has, by what the system says of them in files: no driver is opened, and
nothing is imported that would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Makers of GPUs by their numbers on the bus. Others are screens of virtual machines.
_MAKERS = {
    "0x10de": "NVIDIA",
    "0x1002": "AMD",
    "0x8086": "Intel",
    "0x106b": "Apple",
    "0x13b5": "Arm",
    "0x5143": "Qualcomm",
    "0x1ed5": "Moore Threads",
}
#: Drivers of GPUs that stand on no bus, as in phones and small boards, with their makers.
_DRIVERS = {
    "asahi": "Apple",
    "msm": "Qualcomm",
    "panfrost": "Arm Mali",
    "panthor": "Arm Mali",
    "v3d": "Broadcom",
    "tegra": "NVIDIA",
}
_MAX_GPUS, _MAX_CHARS = 64, 4096


def present(root: Path = Path("/")) -> list[str]:
    """Their names, each GPU once, as well as the system knows them."""
    return [*_nvidia(root), *_rendering(root), *_of_windows(root)][:_MAX_GPUS]


def _nvidia(root: Path) -> Iterator[str]:
    """Those of NVIDIA's own driver, which tells their models."""
    for folder in _listed(root / "proc/driver/nvidia/gpus"):
        lines = _text(folder / "information").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
        yield names[0] if names and names[0] else "an NVIDIA GPU"


def _rendering(root: Path) -> Iterator[str]:
    """Those that other drivers offer for rendering, and so for computing."""
    for node in _listed(root / "sys/class/drm"):
        device = node / "device"
        if not node.name.startswith("renderD"):
            continue
        driver = _link_name(device / "driver")
        if driver == "nvidia":
            continue  # told by its driver
        maker = _MAKERS.get(_text(device / "vendor").strip().lower()) or _DRIVERS.get(driver)
        if maker is not None:
            yield _text(device / "product_name").strip() or f"a GPU by {maker}"


def _of_windows(root: Path) -> Iterator[str]:
    """That which Windows lends to a Linux inside it."""
    if (root / "dev/dxg").exists():
        yield "a GPU of Windows"


def _listed(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())[:_MAX_GPUS]
    return []


def _text(path: Path) -> str:
    with suppress(OSError), path.open(errors="replace") as file:
        return file.read(_MAX_CHARS)
    return ""


def _link_name(path: Path) -> str:
    with suppress(OSError):
        return path.readlink().name
    return ""

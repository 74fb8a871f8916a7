"""GPUs are told by what the system has of them in files: here in a folder that looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from arenite.cli import gpus
from tests.cli.test_onnx import arenite
from tests.model.models import network


def machine(root: Path, **cards: tuple[str, str]) -> Path:
    """A system with cards: their vendor's number and their driver, by the name of their node."""
    for name, (vendor, driver) in cards.items():
        device = root / "sys/devices" / name
        (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
        device.mkdir(parents=True)
        (device / "driver").symlink_to(root / "sys/drivers" / driver)
        (device / "vendor").write_text(f"{vendor}\n")
        node = root / "sys/class/drm" / name
        node.mkdir(parents=True)
        (node / "device").symlink_to(device)
    return root


def nvidia(root: Path, number: int, information: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / f"0000:{number:02x}:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(information)


def test_a_machine_without_any_has_none(tmp_path: Path) -> None:
    assert gpus.present(tmp_path) == []
    assert gpus.present(machine(tmp_path, card0=("0x10de", "nouveau"))) == []  # a screen alone


def test_models_are_named_where_a_driver_tells_them(tmp_path: Path) -> None:
    nvidia(tmp_path, 1, "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n")
    nvidia(tmp_path, 2, "IRQ: 43\n")
    machine(
        tmp_path,
        renderD128=("0x10de", "nvidia"),
        renderD129=("0x1002", "amdgpu"),
        renderD130=("0x8086", "xe"),
    )
    (tmp_path / "sys/devices/renderD129/product_name").write_text("Radeon PRO W7900\n")
    assert gpus.present(tmp_path) == [
        "NVIDIA H200", "an NVIDIA GPU", "Radeon PRO W7900", "a GPU by Intel"
    ]  # fmt: skip


def test_screens_of_virtual_machines_are_none(tmp_path: Path) -> None:
    machine(tmp_path, renderD128=("0x1af4", "virtio-pci"), renderD129=("", "vgem"))
    assert gpus.present(tmp_path) == []


def test_small_boards_and_windows(tmp_path: Path) -> None:
    machine(tmp_path, renderD128=("", "v3d"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    assert gpus.present(tmp_path) == ["a GPU by Broadcom", "a GPU of Windows"]


def test_files_that_are_none_are_passed_over(tmp_path: Path) -> None:
    nvidia(tmp_path, 1, "Model:\n")
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/drm").write_text("no folder")
    assert gpus.present(tmp_path) == ["an NVIDIA GPU"]


def test_info_says_once_that_a_gpu_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(network().SerializeToString())
    monkeypatch.setattr(gpus, "present", lambda: ["NVIDIA H200", "NVIDIA H200"])
    assert arenite("info", path) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("NVIDIA H200") == 1
    assert "not used" in told
    assert "--device webgpu" in told
    monkeypatch.setattr(gpus, "present", list)
    assert arenite("info", path) == 0
    assert "used" not in capsys.readouterr().err

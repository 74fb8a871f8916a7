"""Devices by name, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from arenite import device
from arenite.errors import DeviceUnavailable, InvalidArgument


def test_the_cpu_is_one_for_the_process() -> None:
    assert device.get("cpu") is device.get("cpu") is device.get("CPU")
    assert device.get("cpu").name == "cpu"


def test_a_disk_is_opened_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "weights:with colon.bin"
    path.write_bytes(b"abc")
    first, second = device.get(f"disk:{path}"), device.get(f"DISK:{path}")
    assert first is not second
    assert first.name == second.name == f"disk:{path}"


@pytest.mark.parametrize("name", ["cuda", "CUDA:0", "cuda:1"])
def test_devices_of_later_versions_give_the_reason(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f'{name}.*this version.*use "cpu"'):
        device.get(name)


@pytest.mark.parametrize("name", ["", "tpu", "TPU:0", "cpu:0", "CPU:", "cudax:0"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match=r'"cpu", "disk:PATH", "webgpu"'):
        device.get(name)


def test_a_disk_needs_a_path_and_a_name_is_a_string() -> None:
    with pytest.raises(InvalidArgument, match="disk:PATH"):
        device.get("disk:")
    with pytest.raises(InvalidArgument, match="string"):
        device.get(cast(Any, None))

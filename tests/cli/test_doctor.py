"""`arenite doctor` and `arenite cache`: what they say of this machine, and of one that lacks
something."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.driver.limits import limits
from arenite.cli import doctor, main
from arenite.program import cache
from arenite.program.threads import default_n_threads

ROOT = Path(__file__).parent.parent.parent

Captured = pytest.CaptureFixture[str]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_every_package_that_is_needed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, "doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)["facts"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=~!]", requirement)[0]
        assert facts[name] == metadata.version(name)
    assert facts["arenite"] == arenite.__version__
    assert {"python", "system", "threads", "memory", "cpu", "instructions", "cache"} <= set(facts)
    assert run(monkeypatch, "doctor") == 0
    assert "llvmlite" in capsys.readouterr().out


def test_adapters_for_webgpu_are_named_by_their_numbers() -> None:
    wgpu = pytest.importorskip("wgpu", reason="wgpu: pip install 'arenite[webgpu]'")
    facts, _ = doctor.examine()
    named = [facts[name] for name in facts if name.startswith("webgpu:")]
    there = {str(one.info["device"]) for one in wgpu.gpu.enumerate_adapters_sync()}
    assert all(any(name in told for name in there) for told in named)
    assert named or "no adapter" in facts["webgpu"] or "did not start" in facts["webgpu"]


def test_without_wgpu_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    facts, missing = doctor.examine()
    assert "pip install 'arenite[webgpu]'" in facts["webgpu"]
    assert not missing


def test_speed_is_measured_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """What is shown are the limits that profiles judge by."""
    n_cores = default_n_threads()
    assert run(monkeypatch, "doctor", "--speed", "--json") == 0
    speed = json.loads(capsys.readouterr().out)["speed"]
    found = limits()
    assert (speed["float32_gflops"], speed["int8_gops"]) == (found.gflops, found.int8_gops)
    assert speed["float64_gflops"] == found.float64_gflops
    assert list(speed["read_gbytes"]) == ["L1", "L2", "L3", "memory"]
    assert speed["read_gbytes"]["memory"] == found.read_gbytes
    assert speed["memory_gbytes_of_all"] == n_cores * limits(n_cores).read_gbytes
    assert run(monkeypatch, "doctor", "--speed") == 0
    assert f"{found.gflops:.0f} GFLOP/s in float32" in capsys.readouterr().out
    assert run(monkeypatch, "doctor", "--json") == 0
    assert "speed" not in json.loads(capsys.readouterr().out)


def test_what_is_missing_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def version(name: str) -> str:
        if name == "rich":
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    monkeypatch.setattr(doctor, "version", version)
    assert run(monkeypatch, "doctor") == 1
    assert "missing: rich: pip install rich" in capsys.readouterr().err


def test_another_system_is_told_what_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    _, missing = doctor.examine()
    assert any("native code runs on Linux" in one for one in missing)


def test_the_cache_is_counted_and_cleared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    store = cache.Cache(tmp_path / "cache")
    monkeypatch.setattr(cache, "default", lambda: store)
    with arenite.compile(lambda x: x + 1, arenite.spec((3,))) as program:
        assert program(np.zeros(3, np.float32)).tolist() == [1, 1, 1]

    def info() -> dict[str, object]:
        assert run(monkeypatch, "cache", "info", "--json") == 0
        said: dict[str, object] = json.loads(capsys.readouterr().out)
        return said

    found = info()
    assert found["folder"] == str(tmp_path / "cache")
    n_entries = found["entries"]
    assert isinstance(n_entries, int)
    assert n_entries > 0
    assert found["kernels"] == 1
    assert run(monkeypatch, "cache", "info") == 0
    assert str(tmp_path) in capsys.readouterr().out
    assert run(monkeypatch, "cache", "clear") == 0
    assert capsys.readouterr().out.startswith(f"{n_entries} entries and 1 kernels removed")
    assert info()["entries"] == 0

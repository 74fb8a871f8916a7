"""Targets: the host, the fixed ones, and names for them that tell machines apart."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arenite.backends.cpu import identity
from arenite.backends.cpu.identity import cache_nbytes
from arenite.backends.cpu.target import AVX2, AVX512, AVX512_VNNI, NEON, X86_64, host, of_features
from arenite.errors import DeviceUnavailable


def test_the_fixed_targets_are_as_wide_as_their_names_say() -> None:
    widths = [one.vector_bits for one in (X86_64, AVX2, AVX512, AVX512_VNNI, NEON)]
    assert widths == [128, 256, 512, 512, 128]


def test_the_host_has_what_the_system_says() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    assert host().vector_bits == (512 if "avx512vl" in flags else 256 if "avx2" in flags else 128)
    assert host().l1d_nbytes >= 8 * 1024


def test_features_decide_what_a_target_has() -> None:
    wide = {"avx512f": True, "avx512bw": True, "avx512dq": True, "avx512vl": True, "avx2": True}
    found = of_features("x86_64", "some", {**wide, "fma": True, "avx512vnni": True, "rtm": False})
    assert (found.vector_bits, found.n_vector_registers) == (512, 32)
    assert (found.has_fma, found.has_vnni, found.has_f16c) == (True, True, False)
    assert found.features.split(",")[-1] == "-rtm"
    assert of_features("x86_64", "some", {**wide, "avx512vl": False}).vector_bits == 256
    arm = of_features("aarch64", "some", {"dotprod": True})
    assert (arm.vector_bits, arm.has_vnni, arm.n_vector_registers) == (128, True, 32)
    assert "+reserve-x18" in arm.features
    assert "-outline-atomics" in of_features("aarch64", "some", {}).features


def test_identities_differ_when_anything_differs() -> None:
    targets = [X86_64, AVX2, AVX512, NEON, replace(AVX2, l2_nbytes=1), replace(AVX2, features="+a")]
    assert len({each.identity for each in targets}) == len(targets)
    assert AVX2.identity == replace(AVX2).identity


def test_the_warm_side_names_the_host_without_llvm() -> None:
    code = (
        "import sys; from arenite.backends.cpu import identity\n"
        "print(identity.host_identity(), identity.compiler_identity())\n"
        "assert 'llvmlite' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(identity.host_identity())
    assert "llvmlite=0." in run.stdout


def test_a_processor_is_known_by_what_does_not_change() -> None:
    one = "processor: 0\nmodel name: Fast 3\ncpu MHz: 2500\nflags: b a\n\nprocessor: 1\nflags: x"
    other = "processor: 0\nmodel name: Fast 3\ncpu MHz: 1200\nflags: a b\n"
    assert identity._first_processor(one) == identity._first_processor(other)
    assert identity._first_processor(one) != identity._first_processor(one.replace("b a", "a"))


def test_cache_sizes_are_read_where_the_system_tells(tmp_path: Path) -> None:
    def index(number: int, level: str, kind: str, size: str) -> None:
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")

    index(0, "1", "Data", "48K")
    index(1, "1", "Instruction", "32K")
    index(2, "2", "Unified", "2M")
    index(3, "3", "Unified", "nonsense")
    assert cache_nbytes(tmp_path) == {1: 48 * 1024, 2: 2 * 2**20}
    assert cache_nbytes(tmp_path / "missing") == {}


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def uname() -> os.uname_result:
        return os.uname_result(("Linux", "x", "1", "1", "riscv64"))

    monkeypatch.setattr(os, "uname", uname)
    with pytest.raises(DeviceUnavailable, match="riscv64"):
        identity.machine()

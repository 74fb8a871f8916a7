"""Every node case of ONNX's own suite, compiled for WebGPU and held to the outputs that it has: a
pass, whatever part of it the device leaves to the CPU, or refused as on the CPU."""

from __future__ import annotations

import pytest

from tests.backends.webgpu.runner import webgpu
from tests.frontends.onnx.suite import cases, outcome
from tests.frontends.onnx.test_suite import NAMES, REFUSED


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_suite(name: str) -> None:
    webgpu()
    if name not in cases():
        pytest.skip("not in the onnx package that is installed")
    result, reason = outcome(cases()[name], compiled=True, device="webgpu")
    assert result == ("unsupported" if name in REFUSED else "pass"), reason

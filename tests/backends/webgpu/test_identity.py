"""Programs are kept by the adapter, its driver and its limits; no other device asks for them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from arenite.device.webgpu import open_device
from arenite.dtype import BY_NAME
from arenite.errors import NoSuchAdapter
from arenite.ir import graph_input, make
from arenite.ir.graph import Graph
from arenite.pipeline import plan_graph
from arenite.pipeline.identity import identity
from arenite.program.options import Options
from tests.backends.webgpu.runner import ON_WEBGPU, webgpu


def test_keys_name_the_adapter_its_driver_and_its_limits() -> None:
    gpu = webgpu()
    about = " | ".join(map(str, identity(ON_WEBGPU)))
    for part in (gpu.adapter_name, gpu.driver, f"binding_nbytes={gpu.limits.binding_nbytes}"):
        assert part in about


def test_another_driver_or_limit_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    webgpu()
    gpu = open_device("webgpu")  # others may have lost the one before it
    keys = {identity(ON_WEBGPU)}
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(threads=1))
    keys.add(identity(ON_WEBGPU))
    monkeypatch.setattr(gpu, "_about", ("another driver",))
    keys.add(identity(ON_WEBGPU))
    assert len(keys) == 3


def test_devices_of_one_kind_have_keys_of_their_own() -> None:
    webgpu()
    assert identity(ON_WEBGPU) != identity(Options(device="webgpu:0"))


@pytest.mark.parametrize("name", ["webgpu:99", "webgpu:abacus"])
def test_nothing_is_planned_for_a_name_that_no_adapter_has(name: str) -> None:
    """Where there is no adapter at all, programs can be planned; here there are some."""
    gpu = webgpu()
    graph = Graph.of([make("neg", graph_input("x", 0, (3,), BY_NAME["float32"]))])
    with pytest.raises(NoSuchAdapter, match=re.escape(f"{name!r}; there are:")) as refusal:
        plan_graph(graph, Options(device=name))
    assert gpu.adapter_name in str(refusal.value)


@pytest.mark.parametrize(
    ("before", "device", "printed"),
    [
        ("pass", "cpu", "False"),
        ("pass", "c", "False"),
        ("sys.modules['wgpu'] = None", "webgpu", "no adapter"),
    ],
)
def test_wgpu_is_there_for_webgpu_alone(before: str, device: str, printed: str) -> None:
    code = (
        f"import sys; {before}\n"
        "from arenite.pipeline.identity import identity\n"
        "from arenite.program.options import Options\n"
        f"about = identity(Options(device={device!r}))\n"
        "print('wgpu' in sys.modules, *about[1:])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed in run.stdout

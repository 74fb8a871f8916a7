"""Mixed programs: what the device refuses runs on the CPU, copies are launches, the host runs
branches and loops; all of it is counted and shown."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.errors import DoesNotFit, RunFailed
from arenite.ir import OPS, Region, Var, full, graph_input, make, parameter
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.host import HostFunction
from arenite.pipeline.fallback import Fallback
from arenite.pipeline.program import compile_program
from arenite.pipeline.segmented import SegmentedExecutable
from tests.backends.webgpu.runner import ON_WEBGPU, Array, devices_of, webgpu
from tests.pipeline.control_graphs import ControlMaker
from tests.pipeline.mixed_graphs import MixedMaker

F32, I64, BOOL = (BY_NAME[name] for name in ("float32", "int64", "bool"))


@pytest.fixture(autouse=True)
def gpu() -> None:
    webgpu()


def reversed_on_host(x: Node) -> Node:
    """An op that no device does."""
    function = HostFunction(lambda a: np.ascontiguousarray(a[::-1]), "reverse")
    return make("host", x, function=function, shape=x.shape, dtype=x.dtype)


def mixed(*outputs: Node) -> SegmentedExecutable:
    program = compile_program(Graph.of(outputs), ON_WEBGPU)
    assert isinstance(program, SegmentedExecutable)
    return program


def test_an_op_between_two_of_the_device_runs_on_the_cpu_with_copies_around_it() -> None:
    x = graph_input("x", 0, (64,), F32)
    y = make("exp", reversed_on_host(make("neg", x)))
    data = np.linspace(-2, 2, 64, dtype=np.float32)
    with mixed(y) as program:
        [found] = program(data)
        np.testing.assert_allclose(found, np.exp(-data[::-1].astype(np.float64)), rtol=3e-7)
        assert [one.device for one in program.segments] == ["webgpu", "cpu", "webgpu"]
        assert program.on_cpu == {"host": "host: what the host does between kernels"}
        for one in program.segments[::2]:  # to the device, the kernel, and back
            names = [kernel.launch.name for kernel in one.executable.kernels]
            assert [name.startswith("transfer") for name in names] == [True, False, True]
        table = str(program.plan)
        assert table.count("webgpu") == 2
        assert table.count("cpu") == 1
        program.verify()
        [again] = program.run_checked(data)
        assert again.tobytes() == found.tobytes()
        profile = program.profile(data)
        assert sum("transfer" in one.name for one in profile.kernels) == 4
        assert program.runs_on == f"webgpu and {program.threads} threads"
        assert f"{program.runs_on}>" in repr(program)


def test_ops_of_the_cpu_side_by_side_are_one_segment() -> None:
    x = graph_input("x", 0, (8,), F32)
    one, other = reversed_on_host(make("neg", x)), reversed_on_host(make("abs", x))
    with mixed(make("add", one, other)) as program:
        data = np.arange(8, dtype=np.float32) - 4
        np.testing.assert_array_equal(program(data)[0], (np.abs(data) - data)[::-1])
        assert [one.device for one in program.segments] == ["webgpu", "cpu", "webgpu"]


def test_the_host_runs_a_loop_whose_body_is_the_devices() -> None:
    number, value, step = parameter((), I64), parameter((3,), F32), parameter((3,), F32)
    body = Region((number, value, step), (full((), True, BOOL), make("add", value, step)))
    trips = graph_input("n", 0, (), I64)
    x, y = graph_input("x", 1, (3,), F32), graph_input("y", 2, (3,), F32)
    done = make("loop", trips, full((), True, BOOL), x, y, body=body, carried=1, index=0)
    with mixed(make("neg", done)) as program:
        for n in (0, 1, 5):
            [found] = program(np.int64(n), np.ones(3, np.float32), np.full(3, 2, np.float32))
            np.testing.assert_array_equal(found, np.full(3, -1 - 2 * n))
        assert devices_of(program) == {"webgpu"}
        in_body = program.segments[0]
        assert in_body.n_entered == 6  # 0 + 1 + 5
        assert "6  webgpu" in str(program.plan)


def test_the_host_chooses_a_branch_and_the_device_runs_it() -> None:
    given = parameter((4,), F32)
    then, otherwise = (Region((given,), (make(op, given),)) for op in ("exp", "abs"))
    condition, x = graph_input("c", 0, (), BOOL), graph_input("x", 1, (4,), F32)
    chosen = make("branch", condition, x, then=then, otherwise=otherwise, index=0)
    data = np.array([-1, 0, 1, 2], np.float32)
    with mixed(chosen) as program:
        np.testing.assert_allclose(program(True, data)[0], np.exp(data), rtol=3e-7)
        np.testing.assert_array_equal(program(False, data)[0], np.abs(data))
        assert sorted(one.n_entered for one in program.segments) == [1, 1]
        assert devices_of(program) == {"webgpu"}


def test_states_live_from_run_to_run() -> None:
    x, state = graph_input("x", 0, (4,), F32), make("state", name="s", shape=(4,), dtype=F32)
    after = make("add", state, reversed_on_host(x))
    program = compile_program(
        Graph((x,), (make("neg", after),), updates=((state, after),)), ON_WEBGPU
    )
    with program:
        data = np.arange(4, dtype=np.float32)
        for n in (1, 2, 3):
            np.testing.assert_array_equal(program(data)[0], -n * data[::-1])
        np.testing.assert_array_equal(program.state["s"].numpy(), 3 * data[::-1])


def test_a_host_function_that_fails_leaves_the_program_usable() -> None:
    fails = [True]

    def function(a: Array) -> Array:
        if fails.pop():
            raise ValueError("not today")
        return a

    x = graph_input("x", 0, (4,), F32)
    node = make("host", x, function=HostFunction(function, "moody"), shape=(4,), dtype=F32)
    with mixed(make("neg", node)) as program:
        with pytest.raises((ValueError, RunFailed), match="not today"):
            program(np.ones(4, np.float32))
        fails.append(False)
        program.reset()
        assert program(np.ones(4, np.float32))[0].tolist() == [-1] * 4


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_of_all_types_are_numpys_to_the_last_bit(seed: int) -> None:
    maker = MixedMaker(seed, is_later=seed % 3 == 0)
    graph, wanted = maker.make(40)
    with compile_program(graph, ON_WEBGPU) as program:
        found = program(*maker.arrays)
        assert devices_of(program) == {"webgpu"}
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.dtype.kind not in "biu":  # of bfloat16 NumPy does not know NaN
            one, other = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_array_equal(one, other)


def test_any_ops_may_be_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third op, by chance, of random graphs: stages take turns, and nothing is lost."""
    random, refused = Random(5), dict[Node, bool]()

    def is_needed(self: Fallback, node: Node) -> bool:
        if OPS[node.op].storage in ("given", "constant"):
            return False
        return refused.setdefault(node, random.random() < 0.35)

    monkeypatch.setattr(Fallback, "is_needed", is_needed)
    maker = MixedMaker(1)
    graph, wanted = maker.make(30)
    with SegmentedExecutable(graph, ON_WEBGPU) as program:
        found, checked = program(*maker.arrays), program.run_checked(*maker.arrays)
        program.verify()
        devices = [one.device for one in program.segments]
        assert devices == ["webgpu", "cpu"] * (len(devices) // 2) + ["webgpu"] * (len(devices) % 2)
        assert len(devices) > 3
    for one, again, other in zip(found, checked, wanted, strict=True):
        assert one.tobytes() == again.tobytes()
        if one.dtype.kind not in "biu":
            one, other = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_array_equal(one, other)


def test_a_segment_without_work_is_checked_too() -> None:
    """A result that is an argument, and another that is the CPU's."""
    x = graph_input("x", 0, (4,), F32)
    with mixed(x, reversed_on_host(x)) as program:
        data = np.arange(4, dtype=np.float32)
        for found in (program(data), program.run_checked(data)):
            np.testing.assert_array_equal(found, [data, data[::-1]])


def test_open_sizes_and_arrays_to_write_to() -> None:
    rows = Var("rows", 0, 50)
    x = graph_input("x", 0, (rows, 3), F32)
    y = make("host", make("neg", x), function=HostFunction(np.exp), shape=(rows, 3), dtype=F32)
    with mixed(make("sum", y, axes=(1,))) as program:
        for n in (0, 1, 50, 7):
            data = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
            out = np.empty(n, np.float32)
            program(data, out=[out])
            np.testing.assert_allclose(out, np.exp(-data).sum(1), rtol=1e-6)


def test_a_budget_is_for_all_segments() -> None:
    x = graph_input("x", 0, (1000,), F32)
    graph = Graph.of([make("exp", reversed_on_host(make("neg", x)))])
    with pytest.raises(DoesNotFit, match="segment"):
        compile_program(graph, ON_WEBGPU._replace(memory=9000))(np.ones(1000, np.float32))


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_random_control_flow_is_what_the_reference_has(seed: int) -> None:
    from arenite.ir import reference

    maker = ControlMaker(seed, grows=seed % 2 == 0)
    graph, arrays = maker.make(), maker.arrays(seed)
    wanted = reference.evaluate(graph, arrays)
    with compile_program(graph, ON_WEBGPU) as program:
        found, again = program(*arrays), program(*arrays)
        assert "webgpu" in devices_of(program)
        counts = {"webgpu": 0, "cpu": 0}
        for one in program.segments:  # type: ignore[attr-defined]
            counts[one.device] += one.n_entered
        print(f"seed {seed}: segments entered {counts}")
        assert counts["webgpu"] > counts["cpu"]
    for one, twice, other in zip(found, again, wanted, strict=True):
        assert one.tobytes() == twice.tobytes()
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)

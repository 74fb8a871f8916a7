"""Checked runs: a kernel that touches a byte it did not declare is named.

Every wrong declaration here is one that a mistake in a compiler could make: a write, a scratch or a
read left out, a value taken to be shorter or longer than what the kernel writes. All graphs of ops
and random graphs are run checked where they are tested: in `trial` and in `test_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.errors import IndexOutOfRange, RunFailed, UndeclaredAccess
from arenite.ir.graph import Graph
from arenite.pipeline import compile_anew
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.runtime.executable import Executable
from tests.pipeline.control_graphs import ControlMaker
from tests.pipeline.graphs import FLOAT32, random_array, square_graph

Array = NDArray[Any]

SHAPE = (30, 70)


def scan_graph() -> Graph:
    """A scan, a sort with scratch and a transpose into the arena, a map out of it."""
    x = ir.graph_input("x", 0, SHAPE, FLOAT32)
    scanned = ir.make("cummax", x, axis=1)
    ordered = ir.make("sort", scanned, axis=0, descending=False)
    turned = ir.make("reshape", ir.make("permute", scanned, axes=(1, 0)), shape=SHAPE)
    return Graph((x,), (ir.make("add", ordered, turned),))


GIVEN = random_array(SHAPE, FLOAT32, 1)


def launch_of(compiled: Compiled, name: str) -> int:
    [found] = [k for k, launch in enumerate(compiled.launches) if launch.name.startswith(name)]
    return found


def with_launch(compiled: Compiled, name: str, change: Callable[[Launch], Launch]) -> Compiled:
    k = launch_of(compiled, name)
    launches = list(compiled.launches)
    launches[k] = change(launches[k])
    return compiled._replace(launches=tuple(launches))


def with_length(compiled: Compiled, name: str, more: int) -> Compiled:
    """The plan gives the value so many bytes more."""
    slot = compiled.plan.slots[name]
    slots = {**compiled.plan.slots, name: slot._replace(nbytes=slot.nbytes + more)}
    return compiled._replace(plan=compiled.plan._replace(slots=slots))


def check(compiled: Compiled) -> list[Array]:
    with Executable(scan_graph(), compiled, 2) as program:
        return program.run_checked(GIVEN)


def test_a_right_program_gives_what_it_gives_unchecked() -> None:
    compiled = compile_anew(scan_graph())
    assert len(compiled.launches) == 4
    [checked] = check(compiled)
    with Executable(scan_graph(), compiled, 2) as program:
        [plain] = program(GIVEN)
    assert checked.tobytes() == plain.tobytes()
    scanned = np.maximum.accumulate(GIVEN, 1)
    np.testing.assert_array_equal(checked, np.sort(scanned, 0) + scanned.T.reshape(SHAPE))


def test_a_write_that_is_not_declared_is_named() -> None:
    compiled = compile_anew(scan_graph())
    hidden = with_launch(compiled, "cummax", lambda launch: launch._replace(writes=()))
    with pytest.raises(UndeclaredAccess, match=r"kernel cummax_\d+ writes byte 0 of 'cummax") as e:
        check(hidden)
    assert "declares to write nothing" in str(e.value)


def test_a_result_that_is_not_declared_is_named() -> None:
    compiled = compile_anew(scan_graph())
    hidden = with_launch(compiled, "add", lambda launch: launch._replace(writes=()))
    with pytest.raises(UndeclaredAccess, match=r"kernel add_\d+ writes byte 0 of 'out0'"):
        check(hidden)


def test_scratch_that_is_not_declared_is_named() -> None:
    compiled = compile_anew(scan_graph())
    hidden = with_launch(compiled, "sort", lambda launch: launch._replace(writes=launch.writes[:1]))
    with pytest.raises(UndeclaredAccess, match=r"kernel sort_\d+ writes .*of 'sort_\d+.scratch"):
        check(hidden)


def test_a_read_that_is_not_declared_is_named() -> None:
    compiled = compile_anew(scan_graph())
    hidden = with_launch(compiled, "add", lambda launch: launch._replace(reads=launch.reads[:1]))
    wanted = r"kernel add_\d+ makes from bytes it does not declare to read byte \d+ of 'out0'"
    with pytest.raises(UndeclaredAccess, match=wanted):
        check(hidden)


@pytest.mark.parametrize("fewer", [1, 4, 200])
def test_a_write_behind_the_end_is_named(fewer: int) -> None:
    compiled = compile_anew(scan_graph())
    with pytest.raises(
        UndeclaredAccess, match=r"kernel add_\d+ writes a byte \d+ behind the end of 'out0'"
    ):
        check(with_length(compiled, "out0", -fewer))


def test_a_byte_left_unwritten_is_named() -> None:
    compiled = compile_anew(scan_graph())
    at = int(np.prod(SHAPE)) * 4
    with pytest.raises(
        UndeclaredAccess, match=rf"kernel add_\d+ leaves unwritten byte {at} of 'out0'"
    ):
        check(with_length(compiled, "out0", 4))


def test_it_says_which_line_a_kernel_comes_from() -> None:
    with arenite.compile(lambda x: x.cumsum(0).sort(), GIVEN) as program:
        [executable] = program.executables
        hidden = with_launch(
            executable.compiled, "cumsum", lambda launch: launch._replace(writes=())
        )
        wrong = Executable(executable.graph, hidden)
        with wrong, pytest.raises(UndeclaredAccess, match=r"comes from .*test_checksums.py:\d+"):
            wrong.run_checked(GIVEN)


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_that_reuse_bytes(seed: int) -> None:
    graph = square_graph(seed, 30, 24)
    given = [random_array((24, 24), FLOAT32, k) for k in (10, 20)]
    compiled = compile_anew(graph)
    with Executable(graph, compiled) as program:
        plain = program(*given)
        checked = program.run_checked(*given)
    assert [a.tobytes() for a in checked] == [a.tobytes() for a in plain]
    for k, launch in enumerate(compiled.launches):
        output = compiled.plan.slots[compiled.values[int(launch.writes[0])].name]
        if output.took_over is not None:
            continue  # it may write what was there before
        launches = list(compiled.launches)
        launches[k] = launch._replace(writes=launch.writes[1:])
        hidden = compiled._replace(launches=tuple(launches))
        wrong = Executable(graph, hidden)
        with wrong, pytest.raises(UndeclaredAccess, match=f"kernel {launch.name} "):
            wrong.run_checked(*given)


def test_sizes_may_be_variables() -> None:
    rows = arenite.Var("rows", 1, 50)
    with arenite.compile(lambda x: x.sort(0).cumsum(1), arenite.spec((rows, 7))) as program:
        for n in (3, 50, 1):
            x = random_array((n, 7), FLOAT32, n)
            assert program.run_checked(x).tobytes() == program(x).tobytes()


def test_a_failed_launch_fails_as_in_any_run() -> None:
    with arenite.compile(lambda x, i: x.sort(0).take(i, 0), GIVEN, np.zeros(3, int)) as program:
        with pytest.raises(IndexOutOfRange, match="kernel gather"):
            program.run_checked(GIVEN, np.array([0, 99, 1]))
        with pytest.raises(RunFailed, match="before reset"):
            program(GIVEN, np.zeros(3, int))
        program.reset()
        made = program.run_checked(GIVEN, np.array([0, 29, 1]))
        np.testing.assert_array_equal(made, np.sort(GIVEN, 0)[[0, 29, 1]])


# Branches and loops.


def power(x: Any, n: Any, flag: Any) -> Any:
    """Rows that are sorted and multiplied, n times, and what became of them on the way."""

    def body(k: Any, carried: Any) -> Any:
        y, total = carried
        y = (y @ x).tanh().sort(0)
        return y, total + arenite.cond(flag, lambda: y.cumsum(1), lambda: y * 2)

    return arenite.fori_loop(n, body, (x, x * 0))


SQUARE = random_array((9, 9), FLOAT32, 3)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_loops_and_branches_are_walked(n: int, flag: bool) -> None:
    given = SQUARE, np.array(n), np.array(flag)
    with arenite.compile(power, *given) as program:
        plain, checked = program(*given), program.run_checked(*given)
    assert [one.tobytes() for one in checked] == [one.tobytes() for one in plain]


@pytest.mark.parametrize("name", ["sort", "cumsum", "matmul"])
def test_a_wrong_declaration_in_a_loop_is_named(name: str) -> None:
    given = SQUARE, np.array(3), np.array(True)
    with arenite.compile(power, *given) as program:
        [executable] = program.executables
        hidden = with_launch(executable.compiled, name, lambda one: one._replace(writes=()))
        wrong = Executable(executable.graph, hidden)
        with wrong, pytest.raises(UndeclaredAccess, match=f"kernel {name}.*test_checksums.py"):
            wrong.run_checked(*given)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_with_loops_and_branches(seed: int) -> None:
    maker = ControlMaker(seed)
    graph = maker.make()
    with Executable(graph, compile_anew(graph)) as program:
        for turn in range(3):
            given = maker.arrays(turn)
            plain, checked = program(*given), program.run_checked(*given)
            assert [one.tobytes() for one in checked] == [one.tobytes() for one in plain]


def test_what_is_done_at_load_is_checked_too() -> None:
    weights = random_array((200, 200), FLOAT32, 5)

    def function(x: Any) -> Any:
        return x @ (arenite.from_numpy(weights) * 2).cumsum(0)

    x = random_array((3, 200), FLOAT32, 6)
    with arenite.compile(function, x) as program:
        assert program.run_checked(x).tobytes() == program(x).tobytes()
        [executable] = program.executables
        assert [kernel.entry_point[:6] for kernel in executable.load_kernels][-1] == "cumsum"
        load = list(executable.compiled.load)
        load[-1] = load[-1]._replace(writes=())
        wrong = Executable(executable.graph, executable.compiled._replace(load=tuple(load)))
        with wrong, pytest.raises(UndeclaredAccess, match=r"kernel cumsum_\d+ writes byte 0 of"):
            wrong.run_checked(x)

"""Compiling in children: in parallel, with errors, crashes and hangs contained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from arenite.backends.cpu.compiling import pool as compile_pool
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES, compile_object
from arenite.backends.cpu.compiling.pool import CompilePool, compile_modules, host_target
from arenite.backends.cpu.target import X86_64, host
from arenite.errors import CompileFailed


def module(name: str, body: str = "ret void") -> str:
    return f"define hidden void @{name}(ptr %p) {FUNCTION_ATTRIBUTES} {{\n {body}\n}}"


#: Python 3.12 and later warn of every fork of a process that has threads.
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

#: LLVM aborts on this one.
CRASHES = (
    "define hidden <3 x i7> @crashes(<3 x i7> %a) {\n"
    ' %r = call <3 x i7> asm "bogus $0", "=r,r"(<3 x i7> %a)\n ret <3 x i7> %r\n}'
)


@pytest.fixture
def pool() -> Iterator[CompilePool]:
    made = CompilePool(2)
    yield made
    made.close()


def test_objects_come_back_in_order(pool: CompilePool) -> None:
    names = [f"kernel{i}" for i in range(7)]
    objects = pool.compile_modules([module(name) for name in names], X86_64)
    for name, obj in zip(names, objects, strict=True):
        assert [*link_objects([obj]).entries] == [name]
    assert sorted(link_objects(objects).entries) == names


def test_a_child_gives_the_bytes_that_llvm_gives_here() -> None:
    modules = [module("a"), module("b")]
    assert compile_modules(modules, X86_64) == [compile_object(one, X86_64) for one in modules]
    assert compile_modules([], X86_64) == []


def test_the_host_is_known_without_llvm_in_this_process() -> None:
    code = (
        "import sys\n"
        "from arenite.backends.cpu.compiling.pool import host_target\n"
        "print(host_target().identity)\n"
        "assert 'llvmlite' not in sys.modules"
    )
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout.strip() == host().identity
    assert host_target() == host()


def test_children_are_used_again(pool: CompilePool) -> None:
    pool.compile_modules([module("a")], X86_64)
    [child] = pool._idle
    pool.compile_modules([module("b")], X86_64)
    assert pool._idle == [child]


def test_an_error_names_the_kernels_and_the_pool_goes_on(pool: CompilePool) -> None:
    with pytest.raises(CompileFailed, match=r"(?s)kernels broken.*expected instruction"):
        pool.compile_modules([module("fine"), module("broken", "nonsense")], X86_64)
    assert len(pool.compile_modules([module("fine")], X86_64)) == 1


def test_a_crash_of_llvm_names_the_kernels(pool: CompilePool) -> None:
    with pytest.raises(CompileFailed, match=r"kernels crashes ended the compiler with status -6"):
        pool.compile_modules([CRASHES], X86_64)
    assert len(pool.compile_modules([module("fine")], X86_64)) == 1


def test_a_hang_is_ended_and_named(pool: CompilePool) -> None:
    pool.compile_modules([module("fine")], X86_64)
    [child] = pool._idle
    os.kill(child.process.pid, 19)  # SIGSTOP: it will never answer
    with pytest.raises(CompileFailed, match=r"kernels slow did nothing for 0.2 s"):
        pool.compile_modules([module("slow")], X86_64, job_seconds=0.2)
    assert not child.is_alive
    assert len(pool.compile_modules([module("fine")], X86_64)) == 1


def test_a_limit_is_one_of_processor_time(pool: CompilePool) -> None:
    lines = [f" %v{k} = add i64 %v{k - 1}, {k}" for k in range(1, 60_000)]
    body = "\n".join([" %v0 = load volatile i64, ptr %p", *lines, " ret void"])
    with pytest.raises(CompileFailed, match=r"kernels long took longer than 0.1 s of processor"):
        pool.compile_modules([module("long", body)], X86_64, job_seconds=0.1)
    assert len(pool.compile_modules([module("fine")], X86_64)) == 1


def test_a_machine_that_was_stopped_fails_nothing() -> None:
    """This process and its child are stopped together, in the middle of a job, for longer than a
    job may take."""
    code = (
        "from arenite.backends.cpu.compiling.pool import CompilePool\n"
        "from arenite.backends.cpu.target import X86_64\n"
        "import os\n"
        "pool = CompilePool(1)\n"
        f"pool.compile_modules([{module('a')!r}], X86_64)\n"
        "child = pool._idle[0].process.pid\n"
        "os.kill(child, 19)\n"
        "print(child, flush=True)\n"
        f"print(len(pool.compile_modules([{module('b')!r}], X86_64, job_seconds=1.5)))\n"
        "pool.close()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    child = int(running.stdout.readline())
    os.kill(running.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(running.pid, signal.SIGCONT)
    os.kill(child, signal.SIGCONT)
    out, problem = running.communicate(timeout=60)
    assert (out, problem) == ("1\n", "")


def test_modules_are_compiled_while_others_are_made(pool: CompilePool) -> None:
    heard: list[int] = []
    n_made = 0

    def modules() -> Iterator[str]:
        nonlocal n_made
        while not heard and n_made < 3000:
            n_made += 1
            yield module(f"kernel{n_made}")
            time.sleep(0.02)

    objects = pool.compile_modules(
        modules(), X86_64, on_progress=lambda done, _: heard.append(done)
    )
    assert len(objects) == n_made < 3000
    assert heard == [*range(1, n_made + 1)]
    for k, obj in enumerate(objects, 1):
        assert [*link_objects([obj]).entries] == [f"kernel{k}"]


def test_what_can_not_be_made_ends_the_others(pool: CompilePool) -> None:
    def modules() -> Iterator[str]:
        yield module("fine")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pool.compile_modules(modules(), X86_64)
    assert len(pool.compile_modules(iter([module("fine")]), X86_64)) == 1
    assert pool.compile_modules(iter([]), X86_64) == []


def test_a_child_that_left_when_idle_is_replaced() -> None:
    pool = CompilePool(1, idle_seconds=0.05)
    pool.compile_modules([module("a")], X86_64)
    [child] = pool._idle
    child.process.wait()
    assert len(pool.compile_modules([module("b")], X86_64)) == 1
    pool.close()


def test_children_that_left_are_replaced_before_there_is_work() -> None:
    pool = CompilePool(2, idle_seconds=0.05)
    try:
        pool.start()
        first = list(pool._idle)
        for child in first:
            child.process.wait()
        pool.start()
        assert len(pool._idle) == 2
        assert not set(pool._idle) & set(first)
        assert all(pipe.closed for one in first for pipe in (one.jobs, one.answers, one.errors))
    finally:
        pool.close()


def test_a_child_that_leaves_just_as_work_comes_is_replaced(
    pool: CompilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = compile_pool._start(0.0)
    gone.process.wait()
    monkeypatch.setattr(compile_pool.Child, "is_alive", True)
    pool._idle.append(gone)
    assert len(pool.compile_modules([module("a")], X86_64)) == 1


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit()"])
def test_children_end_with_their_parent(how: str) -> None:
    code = (
        "import os, sys\n"
        "from arenite.backends.cpu.compiling import pool as cp\n"
        "from arenite.backends.cpu.target import X86_64\n"
        f"cp.compile_modules([{module('a')!r}], X86_64)\n"
        "print(cp._POOL._idle[0].process.pid, flush=True)\n" + how
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr == ""
    pid = int(run.stdout)
    for _ in range(1000):
        if not is_running(pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"compiler {pid} outlived its parent")


@forks
def test_a_forked_process_compiles_with_children_of_its_own() -> None:
    before = compile_modules([module("a")], X86_64)
    child = os.fork()
    if child == 0:
        try:
            same = compile_modules([module("a")], X86_64) == before
            compile_pool._POOL.close()
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compile_modules([module("a")], X86_64) == before


def test_without_an_executable_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(CompileFailed, match=r"set sys\.executable"):
        CompilePool(1).compile_modules([module("a")], X86_64)

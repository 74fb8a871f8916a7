"""Locks after a fork, turns, and that no lock of the package is made elsewhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from arenite import locks
from arenite.errors import RunFailed

PACKAGE = Path(locks.__file__).parent

#: What threads wait with. A barrier or a queue that a function makes for threads of its own, and
#: that ends with it, is no lock of the package: no forked process waits for one.
WAITING = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "allocate_lock"}
#: In a process of its own, which never forks; and over a lock of `arenite.locks`, where only the
#: thread of an engine waits, which no forked process has.
ELSEWHERE = {("backends/cpu/compiling/child.py", "Event"), ("serve/engine.py", "Condition")}


def locks_made(source: str) -> set[str]:
    """Names of locks that a file makes or refers to, otherwise than in `arenite.locks`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("threading", "_thread", "multiprocessing"):
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in ("threading", "_thread"):
            found |= {alias.name for alias in node.names}
    return found & WAITING


def test_every_lock_of_the_package_is_one_that_survives_a_fork() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 20
    made = {
        (str(file.relative_to(PACKAGE)), name)
        for file in files
        if file.name != "locks.py"
        for name in locks_made(file.read_text())
    }
    assert made - ELSEWHERE == set()


@pytest.mark.parametrize(
    "line",
    [
        "lock = threading.Lock()",
        "from threading import RLock",
        "x: T = field(default_factory=threading.Lock)",
        "from _thread import allocate_lock as quick",
    ],
)
def test_a_lock_made_otherwise_would_be_seen(line: str) -> None:
    assert locks_made(line) != set()


def passes(script: str) -> None:
    """Run source in a process of its own, which must end well; one that hangs is ended."""
    head = """
import os, threading, time
from arenite import locks

def in_child(body, limit=30):
    '''Fork; the status of a child that runs `body`. One that hangs is killed by its alarm.'''
    child = os.fork()
    if child == 0:
        import signal, traceback
        signal.alarm(limit)
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def in_thread(body):
    '''Start `body(reached)`, and go on once it has called `reached()`, which never returns.'''
    there = threading.Event()
    def reached(*_, **__):
        there.set()
        time.sleep(10**6)
    threading.Thread(target=body, args=(reached,), daemon=True).start()
    assert there.wait(60)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + script],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_another_thread_held_is_free_in_the_child_and_what_this_one_holds_stays_held() -> None:
    passes("""
from functools import cached_property
import sys, types

theirs, also_theirs, mine = locks.reentrant(), locks.exclusive(), locks.reentrant()
turn = locks.Turn("it")
told = []

class Told:
    def forget_after_fork(self):
        assert theirs.acquire(blocking=False)  # free before anyone is told
        theirs.release()
        told.append(os.getpid())

class Slow:
    blocks = True
    @cached_property
    def value(self):
        if Slow.blocks:
            reached_now()
        return 1

module = types.ModuleType("arenite.made_up")  # where the package's classes are
module.Slow = Slow
sys.modules["arenite.made_up"] = module
one = Told()
locks.watch(one)

def hold(reached):
    global reached_now
    reached_now = reached
    with theirs, also_theirs, turn.take():
        Slow().value
in_thread(hold)

def child():
    Slow.blocks = False
    assert told == [os.getpid()]
    with theirs, also_theirs:
        pass
    assert turn.was_cut_short
    with turn.take():
        pass
    assert Slow().value == 1
    # This thread is in the middle of what `mine` guards: nobody else may come in.
    got = []
    other = threading.Thread(target=lambda: got.append(mine.acquire(blocking=False)))
    other.start(); other.join()
    assert got == [False]
    mine.release()
    other = threading.Thread(target=lambda: got.append(mine.acquire(blocking=False)))
    other.start(); other.join()
    assert got == [False, True]

with mine:
    assert in_child(child) == 0
assert told == [] and not turn.was_cut_short
""")


def test_a_turn_is_refused_on_its_own_thread_and_given_again_afterwards() -> None:
    turn = locks.Turn("the thing")
    is_busy = pytest.raises(RunFailed, match="the thing is busy on this very thread")
    with turn.take(), is_busy, turn.take():
        raise AssertionError
    with pytest.raises(KeyError), turn.take():
        raise KeyError
    with turn.take():
        pass


# Memory


def test_a_child_uses_a_storage_that_another_thread_was_allocating() -> None:
    passes("""
from arenite.device import Buffer, CpuAllocator
cpu = CpuAllocator()
allocate = CpuAllocator.allocate
buffer = Buffer(cpu, "uint8", (8,))

def hold(reached):
    CpuAllocator.allocate = reached
    buffer.ensure_allocated()
in_thread(hold)
CpuAllocator.allocate = allocate

def child():
    buffer.copyin(b"12345678")
    assert buffer.copyout() == b"12345678"
assert in_child(child) == 0
""")


def test_a_child_uses_an_allocator_that_another_thread_was_inside_of() -> None:
    passes("""
from arenite.device import Buffer, CpuAllocator, cpu as module

def stopped_in(where, name, use):
    own = CpuAllocator()
    kept = [Buffer.allocate(own, "uint8", (4096 * n,)) for n in (1, 2, 3)]
    kept.pop()
    where = where(own)
    real = getattr(where, name)

    def hold(reached):
        setattr(where, name, reached)
        use(own, kept)
    in_thread(hold)
    setattr(where, name, real)

    def child():
        before = own.stats
        assert before.n_live == len(kept), before
        assert before.live_nbytes == sum(4096 * n for n in range(1, len(kept) + 1)), before
        assert before.pooled_nbytes == 0, before
        Buffer.allocate(own, "uint8", (4096,)).copyin(bytes(4096))
        assert own.stats.pooled_nbytes == 4096
        assert own.trim() == 4096
    assert in_child(child) == 0, name

def allocate(own, kept):
    Buffer.allocate(own, "uint8", (5 * 4096,))

stopped_in(lambda own: module, "_new_mapping", allocate)
stopped_in(lambda own: own._pool, "take", allocate)
stopped_in(lambda own: own._pool, "shrink", lambda own, kept: own.trim())
stopped_in(lambda own: own.ledger, "_reclaim", lambda own, kept: kept.pop())
""")


def test_a_child_uses_a_file_that_another_thread_was_mapping_regions_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    passes(f"""
from arenite.device import DiskAllocator
disk = DiskAllocator({str(tmp_path / "file")!r})

def hold(reached):
    with disk._ledger.locked():
        reached()
in_thread(hold)
def child():
    assert disk.file().copyout() == b"content"
    assert disk.stats.n_live == 0
assert in_child(child) == 0
""")


def test_children_forked_while_threads_allocate_can_allocate() -> None:
    passes("""
from arenite import device
from arenite.device import Buffer, CpuAllocator
own, shared = CpuAllocator(), device.get("cpu")
lazy = [Buffer(own, "uint8", (n,)) for n in range(1, 20000)]
over = threading.Event()

def churn():
    for buffer in lazy:
        if over.is_set():
            return
        buffer.ensure_allocated()
        Buffer.allocate(own, "uint8", (1,))

for _ in range(3):
    threading.Thread(target=churn, daemon=True).start()
def child():
    for allocator in (own, shared):
        Buffer.allocate(allocator, "uint8", (1,)).copyin(b"x")
    for buffer in lazy[:2000:10]:
        buffer.ensure_allocated()
    own.trim()
for _ in range(8):
    assert in_child(child) == 0
over.set()
""")


def test_a_child_imports_what_another_thread_was_importing(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nbegun.set()\ntime.sleep(1)\n")
    (tmp_path / "wrong.py").write_text("import time\nbegun.set()\ntime.sleep(1)\nraise OSError\n")
    passes(f"""
import arenite, builtins, importlib
arenite.__path__.append({str(tmp_path)!r})

def importing(name):
    builtins.begun = threading.Event()
    def work():
        try:
            importlib.import_module(name)
        except OSError:
            pass
    threading.Thread(target=work, daemon=True).start()
    assert begun.wait(60)

importing("arenite.slow")
assert in_child(lambda: importlib.import_module("arenite.slow")) == 0
importing("arenite.wrong")
assert in_child(lambda: importlib.import_module("arenite.slow")) == 0
""")

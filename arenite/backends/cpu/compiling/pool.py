"""Compilation in child processes: several at once, each with a limit of processor time.

In: the text of modules and a target. Out: objects, for `link.link_objects`. Where texts are still
to be made, children compile the first while this process makes the next. A crash of LLVM, a hang,
an error: each becomes a CompileFailed that names the kernels of the module. Children are started
when needed, wait a while for more work, and end with this process; after a fork the child process
starts its own.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from arenite import locks
from arenite.backends.cpu.compiling.child import (
    ANSWER,
    FRAME,
    HOST,
    IDLE_SECONDS,
    MAX_PAYLOAD_NBYTES,
    frame,
    module_frame,
    target_from_json,
    target_json,
)
from arenite.backends.cpu.compiling.llvm import functions_defined
from arenite.backends.cpu.identity import compiler_identity, host_identity
from arenite.backends.cpu.target import Target
from arenite.errors import CompileFailed
from arenite.program import cache
from arenite.program.threads import default_n_threads

#: Processor time of a module. LLVM was seen to hang; 200 kernels take it a second or two.
JOB_SECONDS = 60.0
#: How often in that time it is looked whether a child has run at all.
LOOKS = 20
#: What a pipe to or from a child may hold, so that neither need wait for the other.
PIPE_NBYTES = 2**20
#: Jobs that a child has at once: it goes on while this process is busy with making others.
JOBS_A_CHILD = 2

#: Hears how many modules are compiled, of how many.
OnCompiled = Callable[[int, int], None]


@dataclass(eq=False)
class Child:
    """One compiling process, and what it has answered so far."""

    process: subprocess.Popen[bytes]
    jobs: IO[bytes]
    answers: IO[bytes]
    errors: IO[bytes]
    given: deque[int] = field(default_factory=deque)  # jobs: that it works on, those behind
    began: float = 0.0  # processor time when the first of them came up
    spent: float = 0.0  # since then, when it was looked last
    n_still: int = 0  # looks since it has spent any
    received: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)  # of errors

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """The processor time of the process so far; 0 where it has ended."""
        clock = ctypes.c_int32()
        if ctypes.CDLL(None).clock_getcpuclockid(self.process.pid, ctypes.byref(clock)):
            return 0.0
        with suppress(OSError):
            return time.clock_gettime(clock.value)
        return 0.0

    def begin(self) -> None:
        """The time of the first job counts from now."""
        self.began, self.spent, self.n_still = self.cpu_seconds(), 0.0, 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in (self.jobs, self.answers, self.errors):
            with suppress(OSError):
                pipe.close()


class CompilePool:
    """Children that wait for work. `n_children`: how many work at once, at most."""

    def __init__(self, n_children: int | None = None, idle_seconds: float = IDLE_SECONDS) -> None:
        self.n_children = n_children or default_n_threads()
        self.idle_seconds = idle_seconds
        self._idle: list[Child] = []
        self._lock = locks.reentrant()
        locks.watch(self)

    def compile_modules(
        self,
        modules: Iterable[str],
        target: Target,
        job_seconds: float = JOB_SECONDS,
        on_progress: OnCompiled | None = None,
    ) -> list[bytes]:
        """The objects of these modules, in order; raises CompileFailed. While an iterator makes the
        next, children compile those before. `on_progress(done, total)` hears of each."""
        jobs = (_Job(module_frame(text, target), text) for text in modules)
        # The longest first, so that it is not the one all others wait for at the end.
        is_there = isinstance(modules, list | tuple)
        return self._answers([*jobs] if is_there else jobs, job_seconds, on_progress)

    def host_target(self, job_seconds: float = JOB_SECONDS) -> Target:
        """What `codegen.target.host()` is, without LLVM in this process."""
        [about] = self._answers([_Job(frame(HOST))], job_seconds)
        return target_from_json(about)

    def _answers(
        self, jobs: Iterable[_Job], job_seconds: float, on_progress: OnCompiled | None = None
    ) -> list[bytes]:
        call = _Call(self, jobs, job_seconds, on_progress)
        try:
            return call.results()
        finally:
            call.give_children_back()

    def start(self) -> None:
        """Have children come up before there is work for them."""
        with self._lock:
            ended = [child for child in self._idle if not child.is_alive]
            for child in ended:
                child.close_pipes()
                self._idle.remove(child)
            while len(self._idle) < self.n_children:
                self._idle.append(_start(self.idle_seconds))

    def take(self) -> Child:
        """A child that waits for work, or a new one."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    return child
                child.close_pipes()
        return _start(self.idle_seconds)

    def give_back(self, child: Child) -> None:
        with self._lock:
            if child.is_alive and len(self._idle) < self.n_children:
                self._idle.append(child)
                return
        child.end()

    def close(self) -> None:
        """End all children that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def forget_after_fork(self) -> None:
        """In a forked process: the children are the parent's."""
        idle, self._idle = self._idle, []
        for child in idle:
            child.close_pipes()
            # Not ours to wait for; without this Popen would complain when it is collected.
            child.process.returncode = 0


@dataclass(slots=True)
class _Job:
    frame: bytes  # until it is answered
    module_ir: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        if not self.module_ir:
            return "the question what the host is"
        kernels = ", ".join(functions_defined(self.module_ir)) or "none named"
        return f"a module with the kernels {kernels}"


class _Call:
    """Jobs that were asked for together: which child has which."""

    def __init__(
        self,
        pool: CompilePool,
        jobs: Iterable[_Job],
        job_seconds: float,
        on_progress: OnCompiled | None,
    ) -> None:
        self._pool = pool
        self._on_progress = on_progress
        self._jobs: list[_Job] = []
        self._coming: Iterator[_Job] = iter(()) if isinstance(jobs, list) else iter(jobs)
        self._job_seconds = job_seconds
        self._next_look = time.monotonic() + job_seconds / LOOKS
        self._answers: dict[int, bytes] = {}
        self._todo: list[int] = []  # the one to be done next at the end
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        if isinstance(jobs, list):
            self._jobs = jobs
            self._todo = sorted(range(len(jobs)), key=lambda index: len(jobs[index].frame))

    def results(self) -> list[bytes]:
        for job in self._coming:
            self._todo.insert(0, len(self._jobs))
            self._jobs.append(job)
            self._hand_out()
            self._listen(0.0)
        self._hand_out()
        while len(self._answers) < len(self._jobs):
            self._listen(max(self._next_look - time.monotonic(), 0.0))
        return [self._answers[index] for index in range(len(self._jobs))]

    def _hand_out(self) -> None:
        """Work for children that have none, and more of them where it is not enough."""
        for n_jobs in range(1, JOBS_A_CHILD + 1):
            for child in self._children:
                if len(child.given) < n_jobs:
                    self._next_job(child)
            while self._todo and len(self._children) < self._pool.n_children:
                self._add_child()

    def _listen(self, seconds: float) -> None:
        """Hear what children say, for so long at most; look at them from time to time."""
        for key, _ in self._selector.select(seconds):
            child, pipe = key.data
            if child in self._children:  # else dropped a moment ago, by its other pipe
                self._receive(child, pipe)
        if time.monotonic() >= self._next_look:
            for child in [child for child in self._children if child.given]:
                self._look_at(child)
            self._next_look = time.monotonic() + self._job_seconds / LOOKS

    def _look_at(self, child: Child) -> None:
        """Processor time counts: the machine may be busy with other things, or stopped. A child
        that has none at all, however often we had some ourselves, hangs too."""
        spent = child.cpu_seconds() - child.began
        child.n_still = child.n_still + 1 if spent <= child.spent else 0
        child.spent = spent
        if spent > self._job_seconds:
            self._fail(child, f"took longer than {self._job_seconds:g} s of processor time")
        if child.n_still > LOOKS:
            self._fail(child, f"did nothing for {self._job_seconds:g} s")

    def give_children_back(self) -> None:
        for child in self._children:
            if not child.given and not child.received:
                self._pool.give_back(child)
            else:
                child.end()
        self._selector.close()

    def _add_child(self) -> None:
        child = self._pool.take()
        self._children.append(child)
        for pipe in (child.answers, child.errors):
            self._selector.register(pipe, selectors.EVENT_READ, (child, pipe))
        self._next_job(child)

    def _drop_child(self, child: Child) -> None:
        for pipe in (child.answers, child.errors):
            with suppress(KeyError):
                self._selector.unregister(pipe)
        self._children.remove(child)
        child.end()

    def _next_job(self, child: Child) -> None:
        if not self._todo:
            return
        index = self._todo.pop()
        child.given.append(index)
        if len(child.given) == 1:
            child.begin()
        # A child that has just gone idle and ended shows when its answer is read.
        with suppress(BrokenPipeError):
            child.jobs.write(self._jobs[index].frame)
            child.jobs.flush()

    def _receive(self, child: Child, pipe: IO[bytes]) -> None:
        part = os.read(pipe.fileno(), 2**20)
        if pipe is child.errors:
            child.said += part
            if not part:
                self._selector.unregister(pipe)
            return
        if not part:
            self._ended(child)
            return
        child.received += part
        while len(child.received) >= FRAME.size:
            kind, length = FRAME.unpack_from(child.received)
            if length > MAX_PAYLOAD_NBYTES:
                self._fail(child, "answered nonsense")
            end = FRAME.size + length
            if len(child.received) < end:
                return
            payload = bytes(child.received[FRAME.size : end])
            del child.received[:end]
            self._answered(child, kind, payload)

    def _answered(self, child: Child, kind: int, payload: bytes) -> None:
        index = child.given.popleft()
        child.begin()
        if kind != ANSWER:
            raise CompileFailed(payload.decode(errors="replace"))
        self._answers[index] = payload
        self._jobs[index].frame = b""
        self._hand_out()
        if self._on_progress is not None:
            self._on_progress(len(self._answers), len(self._jobs))

    def _ended(self, child: Child) -> None:
        status = child.process.wait()
        if status != 0 or child.received:
            self._fail(child, f"ended the compiler with status {status}")
        given = [*child.given]
        self._drop_child(child)
        if given:  # it had waited too long for work and left as this came
            self._todo += reversed(given)
            self._add_child()

    def _fail(self, child: Child, what: str) -> None:
        index = child.given[0]
        if not child.is_alive:
            child.said += child.errors.read() or b""
        said = child.said.decode(errors="replace").strip()[-2000:]
        self._drop_child(child)
        raise CompileFailed(f"{self._jobs[index].name} {what}" + (f": {said}" if said else ""))


def host_target() -> Target:
    """The machine this process runs on, as `codegen.target.host()` gives it, asked of a child.

    The answer is kept in the cache, so that no process imports LLVM to learn what it runs on.
    """
    key = cache.key_of("host target", host_identity(), compiler_identity())
    found = cache.default().obtain(key, lambda: {"target": target_json(_POOL.host_target())})
    try:
        return target_from_json(found["target"].tobytes())
    except (KeyError, TypeError, ValueError):
        cache.default().drop(key)
        return _POOL.host_target()


def _start(idle_seconds: float) -> Child:
    if not sys.executable:
        raise CompileFailed(
            "this Python does not know its executable, so no compiler can be started; "
            "set sys.executable to its path"
        )
    # The child finds packages exactly where this process does.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from arenite.backends.cpu.compiling.child import main; main({idle_seconds!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    jobs, answers, errors = process.stdin, process.stdout, process.stderr
    assert jobs is not None
    assert answers is not None
    assert errors is not None
    for pipe in (jobs, answers):
        with suppress(OSError):  # over the user's share of such memory
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_NBYTES)
    return Child(process, jobs, answers, errors)


_POOL = CompilePool()
atexit.register(_POOL.close)
compile_modules = _POOL.compile_modules
start_children = _POOL.start

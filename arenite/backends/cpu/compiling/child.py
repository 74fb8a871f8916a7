"""The compiling side of a pipe: modules come in, objects go out.

A child process of `compile_pool`, which contains LLVM's memory, crashes and hangs. Frames are
`kind u32, length u64, payload`; a job is the target as JSON, a newline and the module, or the
question what the host is, since LLVM knows that best. The main thread reads and a second one
compiles (llvmlite lets go of the GIL), so the child ends the moment its parent does, also in the
middle of a job; it ends by itself when it has been idle.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import struct
import sys
import threading
from dataclasses import asdict
from typing import BinaryIO

from arenite.backends.cpu.compiling.llvm import compile_object, initialise
from arenite.backends.cpu.target import Target, host
from arenite.errors import CompileFailed

FRAME = struct.Struct("<IQ")
MODULE, HOST, ANSWER, FAILURE = range(4)
MAX_PAYLOAD_NBYTES = 2**32
IDLE_SECONDS = 30.0

Jobs = queue.Queue[tuple[int, bytes]]  # kind, payload


def frame(kind: int, payload: bytes = b"") -> bytes:
    return FRAME.pack(kind, len(payload)) + payload


def module_frame(module_ir: str, target: Target) -> bytes:
    """The job to compile a module."""
    return frame(MODULE, target_json(target) + b"\n" + module_ir.encode())


def target_json(target: Target) -> bytes:
    return json.dumps(asdict(target)).encode()


def target_from_json(text: bytes) -> Target:
    return Target(**json.loads(text))


def answer(kind: int, payload: bytes) -> bytes:
    """The frame that answers one job."""
    if kind == HOST:
        return frame(ANSWER, target_json(host()))
    about, _, module_ir = payload.partition(b"\n")
    try:
        return frame(ANSWER, compile_object(module_ir.decode(), target_from_json(about)))
    except CompileFailed as failure:
        return frame(FAILURE, str(failure).encode())


def main(idle_seconds: float = IDLE_SECONDS) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    jobs: Jobs = queue.Queue()
    busy = threading.Event()
    answers = sys.stdout.buffer
    threading.Thread(target=_compile, args=(jobs, answers, busy), daemon=True).start()
    source = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([source], [], [], idle_seconds)
        if not ready and (busy.is_set() or not jobs.empty()):
            continue
        head = _read(source, FRAME.size) if ready else b""
        if len(head) < FRAME.size:
            os._exit(0)  # idle, or the parent has gone
        kind, length = FRAME.unpack(head)
        payload = _read(source, length)
        if len(payload) < length:
            os._exit(0)
        busy.set()
        jobs.put((kind, payload))


def _compile(jobs: Jobs, answers: BinaryIO, busy: threading.Event) -> None:
    try:
        initialise()  # while the first job is still to come
        while True:
            kind, payload = jobs.get()
            busy.set()
            answers.write(answer(kind, payload))
            answers.flush()
            busy.clear()
    except BrokenPipeError:
        os._exit(0)
    except BaseException:
        # Leave with a traceback and a status: the parent names the kernels.
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _read(descriptor: int, n: int) -> bytes:
    """`n` bytes, or fewer where the pipe ends."""
    parts = []
    left = n
    while left:
        part = os.read(descriptor, min(left, 2**20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()

"""TokenizerProcess: a tokenizer.json, run by a child process with limits of time and memory.

In: a folder. Out: facts about its tokenizer, and tokens of texts. Whatever the file makes the
library do, this process gets an answer or one InvalidFile. The child is started again when it is
needed and has gone: after a text it could not do, a fork, an interrupt or `close`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from weakref import finalize

from arenite import locks
from arenite.errors import FileChanged, FileMissing, InvalidFile, NotSupported, RunFailed
from arenite.frontends.folder_files import read_inside
from arenite.frontends.tokenizer_json.frames import Facts, read_frame, write_frame

NAME = "tokenizer.json"
#: The largest that are known have some 30 MB.
MAX_FILE_NBYTES = 2**27
#: Processor time for a file or a text: so much, and a second more for so many bytes or characters.
#: Usual files take a tenth of it on slow machines.
LEAST_SECONDS = 5
NBYTES_A_SECOND = 2**20
CHARACTERS_A_SECOND = 50_000
#: All that the child may map: some five times what the largest vocabularies need.
MAX_MEMORY_NBYTES = 2**31


class TokenizerProcess:
    """Any number of threads may use it; it serves one at a time."""

    def __init__(self, folder: str, names: Sequence[str]) -> None:
        """`names`: tokens whose ids are asked for."""
        self.path = os.path.join(folder, NAME)
        self._folder = os.path.abspath(folder)  # it is read again from wherever that is then
        self._names = list(names)
        self._digest: bytes | None = None  # of the file, once it was read
        self._child: _Child | None = None
        self._turn = locks.Turn(self.path)
        locks.watch(self)
        with self._turn.take():
            self.facts = self._start()

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokens of a text; `special`: texts of special tokens become those tokens."""
        seconds = LEAST_SECONDS + len(text) // CHARACTERS_A_SECOND
        asked = json.dumps({"text": text, "special": special, "seconds": seconds}).encode()
        with self._turn.take():
            if self._child is not None and self._child.has_ended:
                self._drop()
            if self._child is None:
                self._start()
            fault = f"can't encode this text of {len(text)} characters"
            [tokens] = self._answer([asked], 1, fault, seconds)
        return list(array("I", tokens))

    def close(self) -> None:
        """End the child. It is started again when it is needed."""
        with self._turn.take():
            self._drop()

    def _start(self) -> Facts:
        """Start the child with the file, which is the one that was read first."""
        raw = read_inside(self._folder, NAME, MAX_FILE_NBYTES)
        if raw is None:
            raise FileMissing(f"{self._folder} has no {NAME}, which a tokenizer is read from")
        digest = hashlib.sha256(raw).digest()
        if self._digest not in (None, digest):
            raise FileChanged(f"{self.path} changed since it was opened; load the model again")
        self._digest = digest
        seconds = LEAST_SECONDS + len(raw) // NBYTES_A_SECOND
        asked = {
            "path": self.path,
            "names": self._names,
            "seconds": seconds,
            "memory_nbytes": MAX_MEMORY_NBYTES,
        }
        self._child = _Child()
        frames = [json.dumps(asked).encode(), raw]
        try:
            return Facts.of_frames(*self._answer(frames, 3, "is no tokenizer", seconds))
        except BaseException:
            self._drop()  # a child that refuses its file has ended
            raise

    def _answer(
        self, asked: Sequence[bytes], n_frames: int, fault: str, seconds: int
    ) -> list[bytes]:
        """What the child says to this. Where it does not, it is not asked again."""
        child = self._child
        assert child is not None
        try:
            said = child.said(asked, n_frames)
        except BaseException:
            # The answer to this would be taken for the answer to what is asked next.
            self._drop()
            raise
        if said is None:
            self._drop()
            raise InvalidFile(f"{self.path} {fault}: {child.why_ended(seconds)}")
        if isinstance(said, str):
            kind, message = json.loads(said)
            raise (NotSupported if kind == NotSupported.__name__ else InvalidFile)(message)
        return said

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def forget_after_fork(self) -> None:
        """The child belongs to the process that forked."""
        child, self._child = self._child, None
        if child is not None:
            child.forget()


class _Child:
    """The process, and the two pipes to it."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotSupported("a tokenizer.json is run by a second Python, and none is known here")
        # The child finds packages exactly where this process does.
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from arenite.frontends.tokenizer_json.child import main; main()"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process
            )
        except OSError as error:
            raise RunFailed(
                f"no process can be started to run a tokenizer.json: {error.strerror}"
            ) from error
        self._finalizer = finalize(self, _end, self._process)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def said(self, asked: Sequence[bytes], n_frames: int) -> list[bytes] | str | None:
        """So many frames; a text that says what is wrong; None from a process that has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            for frame in asked:
                write_frame(stdin.fileno(), frame)
        except BrokenPipeError:
            pass  # it may have said why it ended
        refusal = read_frame(stdout.fileno())
        if refusal:
            return refusal.decode()
        if refusal is None:
            return None
        frames = [read_frame(stdout.fileno()) for _ in range(n_frames)]
        answers = [frame for frame in frames if frame is not None]
        return answers if len(answers) == n_frames else None

    def why_ended(self, seconds: int) -> str:
        """Of a process that was ended."""
        code = self._process.returncode
        if code == -signal.SIGXCPU:
            return f"that takes more than {seconds} s of processor time"
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        return (
            f"its library gave up ({name}): over a fault of the file, or because more than "
            f"{MAX_MEMORY_NBYTES} bytes were needed"
        )

    def end(self) -> None:
        self._finalizer()

    def forget(self) -> None:
        """It is another process's child: nobody waits for it here."""
        self._finalizer.detach()
        self._process.returncode = 0
        _close_pipes(self._process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    _close_pipes(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

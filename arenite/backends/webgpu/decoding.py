"""Runs that choose their own tokens: a launch behind those of the program samples, and its token
is copied to where the next run reads it.

    queue   | copy token, launches, sample, copy result | copy token, launches, sample, copy ...
    host            submits run n + 1        reads token n
    a thread        records runs n + 2 and n + 3

The host knows positions and sizes ahead, and no token: so it submits while the device is busy, and
reads tokens when they come. Recording takes most of its time and is done without Python's lock, so
a thread does it meanwhile. Where a grammar says which tokens may come, it does so from the token
before: the run is under way while the host finds out, and the choice follows with the mask.

    queue   | copy token, launches | mask, sample, copy result | copy token, launches | ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.exchange import Exchange, Transfer
from arenite.backends.webgpu.recorder import record_rows
from arenite.backends.webgpu.results import Output, Pending
from arenite.backends.webgpu.sampling import (
    CANDIDATES,
    CHOICE_AT,
    DRAWN,
    KIND_AT,
    ROOM,
    TOKEN_AT,
    UNDECIDED,
    contents,
    mask_words,
    masked,
    shader,
)
from arenite.backends.webgpu.table import ROW, DispatchTable, handle
from arenite.device.webgpu import WORD_NBYTES
from arenite.dtype import BY_NAME, float32
from arenite.program.decoding import ChosenToken, TokenChoice

if TYPE_CHECKING:
    from arenite.backends.webgpu.load import Recorded, WebGpuProgram

Array = NDArray[Any]

#: Threads of the group that samples, where a device has so many.
THREADS = 1024
#: Runs that are recorded, or are being, and not submitted: with one alone the thread would wait for
#: the host, which waits for it.
N_AHEAD = 2


class Ahead(NamedTuple):
    """A run that a thread records. It serves any text at any place, as long as its key is the
    same: tokens come and go by the sampler's memory."""

    key: bytes
    exchange: Exchange
    recorded: Future[Recorded]


class WebGpuDecoding:
    """One text in the making."""

    def __init__(
        self,
        program: WebGpuProgram,
        ends: tuple[Transfer, Transfer],
        choice: TokenChoice,
        tokens: Sequence[int],
        numbers: NDArray[np.float64],
    ) -> None:
        """`ends` are the copy of the token, which comes from here, and that of the logits, which
        stay where they are."""
        self._program = program
        self._token, logits = ends
        [self._launches] = [step for step in program.order.steps if isinstance(step, range)]
        self._pending: deque[Pending] = deque()
        self._thread = ThreadPoolExecutor(1, "arenite record")
        self._ahead = program.ahead
        self._choice = choice
        memory = contents(choice, tokens, numbers, len(tokens) + len(numbers))
        self._mask_at = memory.nbytes - mask_words(choice.n_tokens) * WORD_NBYTES
        self._sampler = program.sampler(memory.nbytes, shader(_threads(program)), logits.there)
        self._region, sample = self._sampler.region, self._sampler.sample
        self._region.buffer.view(0, memory.nbytes).copyin(memory.view(np.uint8))
        row = (handle(sample.pipeline), handle(sample.bind_group), 1, 1)
        self._row = np.array([row], ROW)

    @classmethod
    def begin(
        cls,
        program: WebGpuProgram,
        choice: TokenChoice,
        tokens: Sequence[int],
        numbers: NDArray[np.float64],
    ) -> WebGpuDecoding | None:
        """None for a choice that is not done here, and for a program whose first argument is no
        token, or which has other results than a row of logits, or arguments and results that don't
        stay where they are until all launches are done."""
        copies = [step for step in program.order.steps if isinstance(step, Transfer)]
        values = program.compiled.values
        given = [step for step in copies if step.value in program.compiled.frame.numbers("input")]
        token = next((step for step in given if values[step.value].source == 0), None)
        results = [step for step in copies if step not in given]
        if token is None or len(results) != 1 or choice.top_k > CANDIDATES:
            return None
        if choice.n_tokens > _threads(program) * ROOM:
            return None
        [logits] = results
        is_one = (
            values[token.there].dtype == BY_NAME["int32"] and values[logits.there].dtype == float32
        )
        if not (is_one and all(step.is_free for step in copies)):
            return None
        return cls(program, (token, logits), choice, tokens, numbers)

    @property
    def n_pending(self) -> int:
        return len(self._pending)

    def start(self, arrays: Sequence[Array], sizes: Mapping[str, int]) -> None:
        program = self._program
        with program.failing():
            table = program.bound_table(sizes)
            exchange, commands = self._next(table)
            exchange.arrays, exchange.sizes = arrays, sizes
            for step in program.order.arguments:
                if step != self._token:
                    exchange.record(None, step, program.place(step.there))
            table.write()
            self._pending.append(program.submit(commands))
            self._record_ahead(table)

    def _next(self, table: DispatchTable) -> tuple[Exchange, Recorded]:
        """The run that is next: recorded ahead, or now where none is, as in the beginning."""
        rows = self._rows_of(table)
        if self._ahead and self._ahead[0].key != self._key(rows):
            self._ahead.clear()
        if self._ahead:
            _, exchange, recorded = self._ahead.popleft()
            return exchange, recorded.result()
        exchange = self._exchange()
        return exchange, self._record(table, rows, exchange)

    def _record_ahead(self, table: DispatchTable) -> None:
        """Let the next runs be recorded, as the table is now."""
        while len(self._ahead) < N_AHEAD:
            rows, exchange = self._rows_of(table), self._exchange()
            # The table keeps what the rows name.
            recorded = self._thread.submit(self._record, table, rows, exchange)
            self._ahead.append(Ahead(self._key(rows), exchange, recorded))

    def _rows_of(self, table: DispatchTable) -> Array:
        """Those of a run, as the table is now."""
        launches = table.rows[self._launches.start : self._launches.stop]
        chosen = self._row[:0] if self._choice.is_masked else self._row
        return np.concatenate([launches.reshape(-1), chosen])

    def _key(self, rows: Array) -> bytes:
        """All that a recorded run depends on."""
        return rows.tobytes() + self._row.tobytes()

    def _exchange(self) -> Exchange:
        program = self._program
        return Exchange(program.staging, program.compiled, {}, {}, (), ())

    def _record(self, table: DispatchTable, rows: Array, exchange: Exchange) -> Recorded:
        program, ours = self._program, self._region.gpu
        encoder = program.encoder()
        there, at = program.place(self._token.there)
        encoder.copy_buffer_to_buffer(ours, TOKEN_AT, there.gpu, at * WORD_NBYTES, WORD_NBYTES)
        record_rows(encoder, rows)
        if not self._choice.is_masked:
            self._copy_choice(encoder, exchange)
        return program.finished(encoder, exchange)

    def _copy_choice(self, encoder: Any, exchange: Exchange) -> None:
        """Take along what is chosen."""
        ours, to = self._region.gpu, exchange.token_at
        encoder.copy_buffer_to_buffer(ours, CHOICE_AT, exchange.staging, to, WORD_NBYTES)
        exchange.outputs.append(Output((), np.dtype(np.uint32), to))

    def _choose(self, allowed: NDArray[np.bool_]) -> Pending:
        """Begin to choose among these, behind the one run that has begun."""
        program, ours = self._program, self._region.gpu
        with program.failing():
            bits, kind = masked(self._choice, allowed)
            queue = program.device.device.queue
            queue.write_buffer(ours, self._mask_at, bits)
            queue.write_buffer(ours, KIND_AT, np.array([kind], np.uint32))
            exchange, encoder = self._exchange(), program.encoder()
            record_rows(encoder, self._row)
            self._copy_choice(encoder, exchange)
            return program.submit(program.finished(encoder, exchange))

    def result(self, allowed: NDArray[np.bool_] | None = None) -> ChosenToken | None:
        pending = self._pending.popleft()
        if self._choice.is_masked:
            assert allowed is not None
            choice = self._choose(allowed)
            pending.result()  # what went wrong in the run
            pending = choice
        [word] = pending.result()
        self._program.check_cancelled()
        if int(word) & UNDECIDED:
            return None
        return ChosenToken(int(word) & (DRAWN - 1), bool(int(word) & DRAWN))


def _threads(program: WebGpuProgram) -> int:
    """Those of the group that samples: a power of two."""
    return min(THREADS, 1 << program.device.limits.threads.bit_length() - 1)

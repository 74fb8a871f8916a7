"""EngineStats: what an engine is doing, as plain data; and what it counts for that."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import perf_counter

from arenite.generate.generation import Stats

#: Seconds over which rates are taken, and requests whose waits are remembered.
RATE_SECONDS = 10.0
N_WAITS = 512


@dataclass(frozen=True, slots=True)
class SlotStats:
    """One slot: the text in it, how far it is, and its pages of the pool."""

    number: int
    text: int  # the number of its request
    state: str  # "reading" its prompt, "writing"
    prompt_tokens: int
    reused_tokens: int
    read_tokens: int
    generated_tokens: int
    pages: tuple[int, ...]
    shared_pages: int  # of them, that other texts have too, or had filled


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A moment of an engine."""

    slots: tuple[SlotStats | None, ...]  # None: free
    n_waiting: int
    n_pages: int
    n_free_pages: int
    n_idle_pages: int  # known, and nobody has them
    page_tokens: int
    n_requests: int
    n_finished: int
    n_cancelled: int
    n_failed: int
    n_refused: int
    prompt_tokens: int  # that were read, since the start
    reused_tokens: int  # that need not be read
    generated_tokens: int
    n_steps: int
    step_seconds: float  # in the program, since the start
    busy_seconds: float  # in steps and all that is done between them
    tokens_a_second: float  # made, over the last seconds
    prompt_tokens_a_second: float
    first_token_seconds: tuple[float, ...]  # of the last requests, from when each was submitted


class Counts:
    """What is counted while an engine runs; who writes or reads several holds its lock."""

    def __init__(self) -> None:
        self.n_requests = self.n_finished = self.n_cancelled = 0
        self.n_failed = self.n_refused = 0
        self.prompt_tokens = self.reused_tokens = self.generated_tokens = 0
        self.n_steps = 0
        self.busy_seconds = 0.0
        self.first_token_seconds: deque[float] = deque(maxlen=N_WAITS)
        self._recent: deque[tuple[float, int, int]] = deque()

    def stepped(self, n_prompt: int, n_made: int) -> None:
        """A step has read so many tokens of prompts, and so many were made of it."""
        now = perf_counter()
        self.prompt_tokens += n_prompt
        self.generated_tokens += n_made
        self.n_steps += 1
        self._recent.append((now, n_prompt, n_made))
        while now - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()

    def begun(self, stats: Stats) -> None:
        """The first token of a text was made."""
        self.reused_tokens += stats.reused_tokens
        self.first_token_seconds.append(stats.prompt_seconds)

    def rates(self) -> tuple[float, float]:
        """Tokens of prompts, and tokens made, a second."""
        recent, now = [*self._recent], perf_counter()
        recent = [one for one in recent if now - one[0] <= RATE_SECONDS]
        if len(recent) < 2:
            return 0.0, 0.0
        seconds = recent[-1][0] - recent[0][0]
        reads, made = (sum(one[k] for one in recent[1:]) for k in (1, 2))
        return reads / seconds, made / seconds

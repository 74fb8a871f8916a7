"""The cases of `bench.language`: what one run of each does, the same on both sides.

decode       64 tokens, one after another, after a prompt of 128
prefill N    a prompt of N tokens into an empty context

Tokens are given, not chosen, so that both sides do the same work; each step ends with its logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol

from bench.language_models import FILES, LARGE, SMOLLM2, prompt

CONTEXT = 1024
N_PROMPT = 128
N_DECODED = 64
KINDS = {SMOLLM2: ("decode", "prefill 128", "prefill 512"), LARGE: ("decode", "prefill 128")}


def n_runs(n_rows: int) -> int:
    """Of a model whose layers are timed, in one turn: each run has many layers of a kind."""
    return 10 if n_rows == 1 else 3


class Session(Protocol):
    def feed(self, tokens: Sequence[int], /) -> object: ...

    def rewind(self, n_tokens: int, /) -> None: ...


@dataclass(frozen=True)
class Case:
    file: str
    kind: str

    @classmethod
    def of(cls, text: str) -> Case:
        """The case that prints as this text."""
        file, _, kind = text.partition(", ")
        return cls(file, kind)

    def __str__(self) -> str:
        return f"{self.file}, {self.kind}"

    @property
    def n_tokens(self) -> int:
        return N_DECODED if self.kind == "decode" else int(self.kind.split()[1])

    @property
    def bar(self) -> float:
        """Our rate over llama.cpp's that is asked for."""
        model, weights = self.file.split()
        if model == LARGE:
            return 1.0
        if weights == "Q4_1":
            return 1.5 if self.kind == "decode" else 2.8
        return 1.2

    def work(self, session: Session) -> Callable[[], None]:
        """One run on a session, which it leaves as it found it."""
        if self.kind == "decode":
            tokens = prompt(self.file, N_PROMPT + N_DECODED)
            session.rewind(0)
            session.feed(tokens[:N_PROMPT])

            def decode() -> None:
                for token in tokens[N_PROMPT:]:
                    session.feed([token])
                session.rewind(N_PROMPT)

            return decode
        # Two prompts that have no beginning in common: nothing can be kept of the one before.
        tokens = prompt(self.file, self.n_tokens)
        prompts = cycle((tokens, tokens[::-1]))

        def prefill() -> None:
            session.rewind(0)
            session.feed(next(prompts))

        return prefill


CASES = tuple(Case(file, kind) for file in FILES for kind in KINDS[file.split()[0]])

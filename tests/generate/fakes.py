"""A tokenizer and a session with the contract of the real ones, small enough to see through."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from arenite.generate.tokenizer import Tokenizer

Logits = NDArray[np.float32]

WORDS = [b'{"', b'":', b"true", b"false", b"ab", b"abc", b"the ", b" the", "né".encode()]
END, START = 256 + len(WORDS), 257 + len(WORDS)
N_TOKENS = START + 1


class FakeStream:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes_of(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class FakeTemplate:
    """`<role>content` for each message and `<assistant>` where an answer is to come."""

    def encode(
        self, messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, *, answer: bool = True
    ) -> list[int]:
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return [START, *tokenizer.encode(text + "<assistant>" * answer, ends=False)]


class FakeTokenizer:
    """Every byte is a token; some words are, which `encode` never uses; two control tokens."""

    n_tokens = N_TOKENS
    bos: int | None = START
    end_tokens = frozenset([END])
    chat_template = FakeTemplate()

    def encode(self, text: str, *, special: bool = False, ends: bool = True) -> list[int]:
        return [START] * ends + list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes_of(token)

    def decode(self, tokens: Iterable[int]) -> str:
        return b"".join(map(bytes_of, tokens)).decode(errors="replace")

    def stream(self) -> FakeStream:
        return FakeStream()


def bytes_of(token: int) -> bytes:
    if token < 256:
        return bytes([token])
    return WORDS[token - 256] if token < END else b""


def tokenizer() -> Tokenizer:
    return cast("Tokenizer", FakeTokenizer())


class FakeSession:
    """Logits are a function of all tokens fed; `fed` keeps what each call brought."""

    def __init__(self, logits_after: Callable[[list[int]], Logits], context: int = 1000) -> None:
        self.context = context
        self.tokens: list[int] = []
        self.fed: list[list[int]] = []
        self._logits_after = logits_after

    @property
    def position(self) -> int:
        return len(self.tokens)

    def feed(self, tokens: Sequence[int]) -> Logits:
        assert len(tokens) > 0
        assert self.position + len(tokens) <= self.context, "fed past the context"
        self.fed.append(list(tokens))
        self.tokens += tokens
        return self._logits_after(self.tokens)

    def rewind(self, n_tokens: int) -> None:
        assert 0 <= n_tokens <= self.position
        del self.tokens[n_tokens:]

    def reset(self) -> None:
        self.rewind(0)

    def ahead(self, *_: Any) -> None:
        """The host chooses."""


def only(token: int) -> Logits:
    """Logits that leave no doubt."""
    logits = np.full(N_TOKENS, -10.0, np.float32)
    logits[token] = 10.0
    return logits


def saying(answer: Iterable[int], n_prompt: int) -> Callable[[list[int]], Logits]:
    """A model that says this after a prompt of `n_prompt` tokens, and then ends."""
    script = [*answer, END]
    return lambda tokens: only(script[min(len(tokens) - n_prompt, len(script) - 1)])


def rambling(tokens: list[int]) -> Logits:
    """A model whose logits are noise, the same after the same tokens."""
    return np.random.default_rng(tokens).normal(0, 3, N_TOKENS).astype(np.float32)

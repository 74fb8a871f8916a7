"""Grammar: which tokens may come next, so that the whole text fulfils a schema or a grammar.

In: a JSON schema, a regular expression, or a Lark or GBNF grammar, and a tokenizer. Out: token
after token, the ones allowed. The work is done by llguidance, which is an extra.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from arenite.device.cpu import give_back_heap
from arenite.errors import InvalidArgument, NotSupported, RunFailed
from arenite.generate.sampling import Sampling

if TYPE_CHECKING:
    from arenite.generate.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

#: Between two parts of JSON: without a bound small models write blanks for ever.
JSON_BLANKS = r"( |\n{1,2}[ \t]{0,20})"
#: Tokens that fit all of this are found at once; each more of such sets, of which llguidance has
#: four, takes 3 MiB of a small vocabulary and saves little.
STRING_CONTENT = r'[^"\\\x00-\x1F\x7F]+'
#: A character that no token joins with others.
MARK = "\x02"
MAX_MESSAGE = 400  # characters quoted of what llguidance says
#: What llguidance says of a grammar that takes more than its limits.
TOO_COMPLEX = "too many"
#: Of a grammar's automaton, made as the text goes on: some 350 bytes each, for every text.
MAX_STATES = 2**14

_token_tries: WeakKeyDictionary[Tokenizer, Any] = WeakKeyDictionary()


class Grammar:
    """Where a text stands within what was asked of it; `accept` moves it on."""

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer) -> None:
        llguidance = _llguidance()
        kind, text = _asked(sampling)
        try:
            if kind == "json_schema":
                blanks = {"whitespace_pattern": JSON_BLANKS}
                rules = llguidance.LLMatcher.grammar_from_json_schema(text, defaults=blanks)
            else:
                rules = llguidance.grammar_from(kind, text)
            limits = llguidance.LLParserLimits(max_lexer_states=MAX_STATES, verbose_errors=False)
            self._matcher = llguidance.LLMatcher(
                _token_trie(tokenizer), rules, log_level=0, limits=limits
            )
        except Exception as error:  # its parsers raise errors of many kinds
            raise InvalidArgument(f"{kind} can't be used: {_one_line(error)}") from error
        if self._matcher.is_error():
            reason = _one_line(self._matcher.get_error())
            raise InvalidArgument(f"{kind} can't be used: {reason}")
        for warning in self._matcher.get_grammar_warnings():
            logger.warning("%s: %s", kind, _one_line(warning))
        self._n_tokens = tokenizer.n_tokens

    def allowed(self) -> NDArray[np.bool_]:
        """One truth a token: whether it may come next. Tokens that end the text count too."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._n_tokens, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        """The token that came; it was among the allowed ones."""
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether the text is whole and nothing may follow."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            message = f"the grammar can't go on: {_one_line(self._matcher.get_error())}"
            if TOO_COMPLEX in message:
                raise InvalidArgument(f"{message}; it is too complex, make it simpler")
            raise RunFailed(message)


def grammar_of(sampling: Sampling, tokenizer: Tokenizer) -> Grammar | None:
    """The grammar that a Sampling asks for, at its beginning; None where it asks for none."""
    asked = (sampling.json_schema, sampling.regex, sampling.grammar)
    return Grammar(sampling, tokenizer) if any(text is not None for text in asked) else None


class _Vocabulary:
    """A Tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        n_tokens = tokenizer.n_tokens
        # One token more, that no model chooses: what ends a text where no token does.
        self.tokens = [*map(tokenizer.token_bytes, range(n_tokens)), b""]
        self.ends = sorted(tokenizer.end_tokens) or [n_tokens]
        self.eos_token_id = self.ends[0]
        self.bos_token_id = tokenizer.bos
        self.special_token_ids = [k for k, content in enumerate(self.tokens) if not content]
        self._tokenizer = tokenizer
        self._mark = tokenizer.encode(MARK, ends=False)

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text that stands within another, as the tokenizer cuts it.

        A mark goes before it, for at its beginning some tokenizers add a blank. One that changes
        the text otherwise is not followed.
        """
        marked = self._tokenizer.encode(MARK + text, ends=False)
        begun, tokens = marked[: len(self._mark)], marked[len(self._mark) :]
        content = text.encode()
        if begun == self._mark and b"".join(map(self._tokenizer.token_bytes, tokens)) == content:
            return tokens
        return self._longest_first(content)

    def _longest_first(self, content: bytes) -> list[int]:
        """Tokens that make exactly these bytes, each as long as can be; up to where there are."""
        tokens: list[int] = []
        at = 0
        while at < len(content):
            length = min(self._longest, len(content) - at)
            while length and content[at : at + length] not in self._ids:
                length -= 1
            if not length:
                break
            tokens.append(self._ids[content[at : at + length]])
            at += length
        return tokens

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        contents = map(self._tokenizer.token_bytes, range(self._tokenizer.n_tokens))
        return {content: token for token, content in enumerate(contents) if content}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)


def make_tables(tokenizer: Tokenizer) -> None:
    """Make what all grammars share now, not with the first one; nothing without llguidance."""
    with suppress(NotSupported):
        _token_trie(tokenizer)


def _token_trie(tokenizer: Tokenizer) -> Any:
    """llguidance's view of a vocabulary: made once, it takes a while."""
    trie = _token_tries.get(tokenizer)
    if trie is None:
        llguidance = _llguidance()
        words = _Vocabulary(tokenizer)
        wrapped = llguidance.TokenizerWrapper(words)
        trie = llguidance.LLTokenizer(wrapped, eos_token=words.ends, slices=[STRING_CONTENT])
        wrapped.tokens = words.tokens = []  # the trie has its own
        give_back_heap()
        _token_tries[tokenizer] = trie
    return trie


def _asked(sampling: Sampling) -> tuple[str, str]:
    if sampling.json_schema is not None:
        return "json_schema", str(sampling.json_schema)
    if sampling.regex is not None:
        return "regex", sampling.regex
    return "grammar", str(sampling.grammar)


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise NotSupported(
            "json_schema, regex and grammar need llguidance, which is not installed; "
            'run `pip install "arenite[grammar]"`'
        ) from error
    return llguidance


def _one_line(message: object) -> str:
    text = " ".join(str(message).replace("<non-verbose/>", "").split())
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " …"

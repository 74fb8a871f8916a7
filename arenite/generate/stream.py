"""Text in whole characters: of tokens as they come, and of what a caller gives."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """The text of tokens as they come. It goes on from text that is there already, so a first space
    is kept; bytes of a character that is not complete are held back."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        return self._decoder.decode(self._token_bytes(token))

    def finish(self) -> str:
        """What was held back: a character that never came to its end, as U+FFFD."""
        return self._decoder.decode(b"", final=True)


def whole_characters(text: str) -> str:
    """A text without halves of surrogate pairs: pairs are joined, lone halves become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text

"""StopText: passes text on and ends it before a stop string, however the text is cut.

In: pieces of text. Out: what can't be the beginning of a stop string any more. The stop string
that is complete first ends the text; of several that end together, the longest.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> str:
        """What may be shown now; `stopped` says whether a stop string was met."""
        if self.stopped:
            return ""
        text = self._held + text
        stops = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if stops:
            self.stopped = True
            self._held = ""
            return text[: min(stops)[1]]
        n_held = max((_n_begun(text, stop) for stop in self._stops), default=0)
        shown = len(text) - n_held
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """The text that was held back: no more comes, so it was no stop string."""
        held, self._held = self._held, ""
        return held


def _n_begun(text: str, stop: str) -> int:
    """Characters at the end of `text` that a stop string could begin with."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)

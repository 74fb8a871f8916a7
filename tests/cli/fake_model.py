"""A model for the commands that talk: it echoes, and everything it was asked is on record.

Run as a program it is the `arenite` command with this model in place of a real one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import arenite
from arenite import memory
from arenite.cli import main
from arenite.memory import Lifetime, MemoryPlan, Value
from tests.generate.fakes import END, FakeSession, FakeTokenizer, Logits, only, tokenizer

#: A message that is answered for as long as nobody stops it.
ENDLESS = "go on"
SECONDS_A_TOKEN = 0.002
MOST_CONTEXT = 10_000


class FakeModel:
    """Answers a message with the same message in capitals; other prompts likewise."""

    name = "parrot"
    tokenizer = tokenizer()

    def __init__(self, path: Path, context: int = 400, **options: Any) -> None:
        self.path, self.context, self.options = path, context, options
        self.sessions: list[FakeSession] = []
        self.is_closed = False
        #: What is asked of a real one's file.
        self.file = SimpleNamespace(description=SimpleNamespace(context=MOST_CONTEXT))

    @property
    def plan(self) -> MemoryPlan:
        return memory.plan([Value("words", 1024, Lifetime(0, 2))])

    def session(self) -> FakeSession:
        self.sessions.append(FakeSession(self._logits_after, self.context))
        return self.sessions[-1]

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        return FakeTokenizer.chat_template.encode(messages, self.tokenizer)

    def cancel(self) -> None:
        """There is never a run in progress when someone asks."""

    def _logits_after(self, tokens: list[int]) -> Logits:
        text = self.tokenizer.decode(tokens)
        asked, _, said = text.rpartition("<user>")[2].partition("<assistant>")
        if asked == ENDLESS:
            time.sleep(SECONDS_A_TOKEN)
            return only(ord("."))
        answer = asked.upper().encode()
        at = len(said.encode()) if "<assistant>" in text else 0
        if "<assistant>" not in text:  # a prompt to go on from: one dot follows
            return only(END if text.endswith(".") else ord("."))
        return only(answer[at] if at < len(answer) else END)

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *about: object) -> None:
        self.is_closed = True


def fake_load(model: Path, **options: Any) -> FakeModel:
    tell = options.pop("on_progress")
    if tell is not None:
        tell("compiling", 0, None)
        tell("packing", 3, 7)
    return FakeModel(model, **options)


def loaded_models(monkeypatch: pytest.MonkeyPatch) -> list[FakeModel]:
    """The models that are loaded from now on, instead of real ones."""
    loaded: list[FakeModel] = []

    def load(model: Path, **options: Any) -> FakeModel:
        loaded.append(fake_load(model, **options))
        return loaded[-1]

    monkeypatch.setattr(arenite, "load", load, raising=False)
    return loaded


if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    vars(arenite)["load"] = fake_load
    main.run()

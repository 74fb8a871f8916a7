"""`arenite chat` with a real model: SmolLM2 135M Instruct, as `arenite pull` fetches it.

Its answers at temperature 0 are those that llama.cpp gives too, up to where they are looked at.
"""

from __future__ import annotations

from pathlib import Path

from tests.cli.terminal import Terminal


def test_a_person_asks_interrupts_goes_on_and_leaves(smollm2: Path) -> None:
    options = ("--context", "512", "--memory", "300MiB", "--temperature", "0", "--max-tokens", "60")
    with Terminal("-m", "arenite.cli.main", "chat", str(smollm2), *options) as terminal:
        before = terminal.see("> ")
        assert "context 512 tokens" in before
        assert "memory " in before
        terminal.type("Which city is the capital of France? Answer in one sentence.\n")
        terminal.see("sentence.\n")  # the echo of what was typed
        assert "Paris" in terminal.see("\n> ")
        terminal.type("Tell me a long story about a dog.\n")
        terminal.see("dog.\n")
        terminal.see(" ")  # a first word
        terminal.type("\x03")
        terminal.see("(ended by Ctrl-C)\n")
        terminal.see("> ")
        terminal.type("/stats\n")
        assert " 0 of them reused" not in terminal.see(" of them reused")
        terminal.see("> ")
        terminal.type("/reset\n")
        terminal.see("\n> ")
        terminal.type("Name the seven days of the week.\n")
        terminal.see("week.\n")
        assert "Monday" in terminal.see("\n> ")
        terminal.type("\x04")
        assert terminal.leave() == 0

"""Hostile templates end in bounded time and memory, with one clear error; Ctrl-C ends them too."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from arenite.errors import InvalidFile
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.text import GIVEN, Text
from arenite.generate.jinja.values import Items
from arenite.generate.template import ChatTemplate
from tests.generate.template_bombs import BOMBS

ROOT = Path(__file__).parent.parent.parent


def test_hostile_templates_give_one_clear_error_each() -> None:
    """All in a child under limits of the system's: what is not priced dies there."""
    command = [sys.executable, "-m", "tests.generate.template_bombs"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    results = json.loads(run.stdout)
    assert results.keys() == BOMBS.keys()
    for name, message in results.items():
        assert "model.gguf" in message, (name, message)
        assert "no memory left" not in message, (name, message)
        assert len(message) < 500
        assert "\n" not in message


def test_ctrl_c_ends_a_render() -> None:
    template = ChatTemplate(BOMBS["a long loop"], "model.gguf")
    talk = [{"role": "user", "content": "x" * 2**20}]  # steps for some seconds

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            template.render(talk)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(InvalidFile, match="more steps"):
        template.render([])


def limited() -> Meter:
    meter = Meter()
    meter.limit()
    return meter


def test_a_meter_counts_what_is_alive() -> None:
    meter = limited()
    meter.max_nbytes = 2**20
    for _ in range(100):  # ten times what may be alive at once
        Text.of("a" * 2**15, GIVEN, meter)
        Items(meter, range(2**12))
    kept = [Text.of("a" * 2**15, GIVEN, meter) for _ in range(8)]
    with pytest.raises(OverBudget, match="1048576 bytes"):
        kept += [Text.of("a" * 2**15, GIVEN, meter) for _ in range(24)]
    kept.clear()
    gc.collect()
    Text.of("a" * 2**17, GIVEN, meter)


def test_what_is_too_large_is_refused_before_it_is_made() -> None:
    text = Text.of("ab", GIVEN, limited())
    with pytest.raises(OverBudget):
        text.times(10**15)
    with pytest.raises(OverBudget):
        Text.of("a" * 2**16, GIVEN, text.meter).replace(
            Text.of("a", GIVEN, text.meter), Text.of("b" * 2**16, GIVEN, text.meter)
        )


@pytest.mark.parametrize("method", ["find", "rfind"])
def test_searching_costs_what_it_takes(method: str) -> None:
    """A text and a part of it made so that the plain search compares all with all."""
    spent = []
    for n_characters in (2**12, 2**13):
        meter = limited()
        text = Text.of("a" * n_characters, GIVEN, meter)
        part = "a" * (n_characters // 4) + "b" + "a" * (n_characters // 4)
        before = meter.steps
        assert getattr(text, method)(part, 0, len(text)) == -1
        spent.append(before - meter.steps)
    assert spent[1] > 3 * spent[0]  # as the work grows, so does the price


@pytest.mark.parametrize("method", ["find", "rfind"])
def test_searching_for_words_is_cheap(method: str) -> None:
    meter = limited()
    text = Text.of("some words of no great length " * 40_000, GIVEN, meter)
    before = meter.steps
    assert getattr(text, method)("</think>", 0, len(text)) == -1
    assert before - meter.steps < len(text) / 64


def test_more_may_be_used_for_longer_talks() -> None:
    source = "{% for m in messages %}{% for n in messages %}{{ n.role[0] }}{% endfor %}{% endfor %}"
    talk = [{"role": "user", "content": "Some words, as people write them."}] * 150
    assert ChatTemplate(source, "model.gguf").render(talk) == "u" * 150 * 150

"""Mask: what could become a part of a control token is hidden, judged by trying all its parts."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.errors import InvalidArgument
from arenite.generate.masks import Mask

CONTROLS = st.lists(st.text("<ab>", min_size=1, max_size=5), max_size=4, unique=True)


@given(CONTROLS, st.text("<ab> ", max_size=8))
def test_edges_that_a_template_could_complete_are_hidden(controls: list[str], text: str) -> None:
    mask = Mask(controls, text)
    hidden = mask.hidden(text)
    assert len(hidden) == len(text)
    assert mask.shown(hidden) == text
    assert not any(control in hidden for control in controls)
    inner = hidden.strip()
    # With anything before or after it that is no control token by itself.
    for control in controls:
        for k in range(1, len(control)):
            assert not inner.endswith(control[:k])
            assert not inner.startswith(control[k:])
        assert not inner or inner not in control


def test_what_no_template_could_complete_stays() -> None:
    mask = Mask(["<s>", "</s>"], "")
    for text in ("plain", "a < b", "x>y", "</i>s", "<sx"):
        assert mask.hidden(text) == text


def test_long_control_tokens_take_no_more_memory_than_their_texts() -> None:
    controls = [f"<{k}" + "x" * 4000 + ">" for k in range(50)]
    tracemalloc.start()
    try:
        mask = Mask(controls, "")
        assert mask.hidden("xxx>") != "xxx>"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * sum(map(len, controls))


def test_a_text_with_all_stand_ins_is_refused() -> None:
    text = "|" + "".join(map(chr, [*range(0x1D000, 0x1D0F6), *range(0xF0000, 0xFFFFE)]))
    with pytest.raises(InvalidArgument, match="all characters that control tokens"):
        Mask(["<|end|>"], text).hidden(text)

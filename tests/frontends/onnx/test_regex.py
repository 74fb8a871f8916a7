"""Regular expressions, judged by Python's own on texts and patterns both can do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.errors import InvalidArgument
from arenite.frontends.onnx.regex import Pattern

atoms = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\s", r"\.", "^", "$", r"\b",
     "(a|b)", "(?:ab|c)*",
     "[0-9x]", "1", " ", "é"]
)  # fmt: skip
marks = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


def joined(parts: list[tuple[str, str]]) -> str:
    """Ends of words and texts are not repeated: Python refuses some of these."""
    return "".join(a if a in ("^", "$", r"\b") or a.endswith("*") else a + m for a, m in parts)


patterns = st.lists(st.tuples(atoms, marks), max_size=6).map(joined)
patterns = st.lists(patterns, min_size=1, max_size=3).map("|".join)


@given(patterns, st.text("ab c1.\n_é", max_size=8))
def test_matches_what_python_matches(pattern: str, text: str) -> None:
    # Python's $ also stands before a last line's end, RE2's does not.
    judge = re.fullmatch(pattern.replace("$", r"\Z"), text, re.ASCII)
    assert Pattern(pattern).matches(text) == (judge is not None)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+)+b", "(.*)(.*)(.*)(.*)(.*)[bc]"])
def test_patterns_that_take_others_for_ever_take_steps_by_length(pattern: str) -> None:
    assert not Pattern(pattern).matches("a" * 5000)
    assert Pattern(pattern).matches("a" * 5000 + "b")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "without its"),
        (")", "without its"),
        ("[a", "the pattern ends"),
        ("*a", "nothing to repeat"),
        ("a{1001}", "at most 1000"),
        ("((a{1000}){1000}){1000}", "more than 10000 states"),
        ("(" * 200 + ")" * 200, "nested more than 100"),
        ("[b-a]", "goes backwards"),
        (r"\p{L}", "not known"),
        ("(?=a)", "of a kind that is not known"),
        (r"\x{110000}", "no character"),
        ("\\", "the pattern ends"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Pattern(pattern)


def test_classes_by_name() -> None:
    assert Pattern("[[:alpha:]]+").matches("abC")
    assert not Pattern("[[:alpha:]]+").matches("ab1")
    assert Pattern(r"a\x41\x{e9}").matches("aAé")

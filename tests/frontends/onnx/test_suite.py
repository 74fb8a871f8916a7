"""Every node case of ONNX's own suite, compiled: a pass, or on a list with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.onnx.suite import cases, outcome

FOLDER = Path(__file__).parent
#: Names, so that collecting tests does not make all cases.
NAMES = (FOLDER / "cases.txt").read_text().split()
#: Cases that are refused, and why.
REFUSED: dict[str, str] = json.loads((FOLDER / "refused.json").read_text())


def test_the_names_are_those_of_the_suite() -> None:
    """Other versions of the onnx package have other cases: those of this list are judged."""
    found = set(cases())
    assert len(found & set(NAMES)) > 0.9 * len(NAMES)
    assert set(REFUSED) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_suite(name: str) -> None:
    if name not in cases():
        pytest.skip("not in the onnx package that is installed")
    result, reason = outcome(cases()[name], compiled=True)
    if name in REFUSED:
        assert (result, name in REFUSED) == ("unsupported", True), f"{REFUSED[name]}: now {result}"
    else:
        assert result == "pass", reason

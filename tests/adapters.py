"""Tests that need an adapter for WebGPU are counted, by its name; so are those that found none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

PROPERTY, NONE = "adapter", ""
#: What the test that runs has asked for: the name of an adapter, or NONE.
asked: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" or report.skipped:
        report.user_properties += [(PROPERTY, name) for name in asked]
    if call.when == "teardown":
        asked.clear()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[Any] = Counter(
        value
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, ())
        for name, value in report.user_properties
        if name == PROPERTY
    )
    for adapter, count in sorted(counts.items()):
        ran = f"ran on {adapter}" if adapter != NONE else "were skipped: there is no adapter"
        terminalreporter.write_line(f"WebGPU: {count:,} tests {ran}")

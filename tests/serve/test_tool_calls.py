"""Calls of tools in answers, however an answer is cut into pieces."""

from __future__ import annotations

import json
from random import Random

import pytest

from arenite.serve.tool_calls import STYLES, CallReader, style_of

CALL = {"name": "weather", "arguments": {"place": "Rome {1}", "days": [1, 2]}}
OTHER = {"name": "time", "arguments": {}}
BARE = {"name": "weather", "parameters": {"place": "Rome"}}
TAGGED, LISTED, WHOLE = (STYLES[mark] for mark in STYLES)


def tagged(*calls: object) -> str:
    return "".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("style", "answer", "text", "names"),
    [
        (TAGGED, tagged(CALL), "", ["weather"]),
        (TAGGED, f"Let me look.\n{tagged(CALL, OTHER)}", "Let me look.\n", ["weather", "time"]),
        (TAGGED, f"<tool_call>{json.dumps([CALL, OTHER])}</tool_call>", "", ["weather", "time"]),
        (TAGGED, "plain < text <tool", "plain < text <tool", []),
        (TAGGED, "<tool_call>no call</tool_call>", "<tool_call>no call</tool_call>", []),
        (LISTED, json.dumps([CALL, OTHER]), "", ["weather", "time"]),
        (LISTED, " see [1] and [2]", " see [1] and [2]", []),
        (WHOLE, f"\n{json.dumps(BARE)}", "", ["weather"]),
        (WHOLE, '{"name": "weather"', '{"name": "weather"', []),
        (WHOLE, "say {so}", "say {so}", []),
    ],
)
def test_an_answer_is_parted(style, answer, text, names, seed) -> None:  # type: ignore[no-untyped-def]
    reader, random, shown, rest = CallReader(style), Random(seed), "", answer
    while rest:
        count = random.randint(1, 6) if seed else len(rest)
        shown += reader.push(rest[:count])
        rest = rest[count:]
    held, calls = reader.finish()
    assert shown + held == text
    assert [call.name for call in calls] == names
    if names:
        assert calls[0].arguments["place"].startswith("Rome")
    assert len({call.id for call in calls}) == len(calls)


def test_text_comes_as_soon_as_it_is_none_of_a_call() -> None:
    reader = CallReader(TAGGED)
    assert [reader.push(one) for one in ("a", " <", "b", "<tool_", "x")] == [
        "a",
        " ",
        "<b",
        "",
        "<tool_x",
    ]


def test_deep_and_endless_calls_are_bounded() -> None:
    for answer in ("<tool_call>" + "[" * 100_000, "<tool_call>" + "{" * 3_000):
        reader = CallReader(TAGGED)
        reader.push(answer)
        held, calls = reader.finish()
        assert (len(held) > 0, calls) == (True, [])


def test_styles_are_found_in_templates() -> None:
    assert style_of("{% if tools %}<tool_call>{% endif %}") is TAGGED
    assert style_of("{{ tools }} [TOOL_CALLS]") is LISTED
    assert style_of("<tool_call> without any") is None
    assert style_of("{{ tools }}") is None

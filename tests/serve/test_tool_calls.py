"""Calls of tools in answers, however an answer is cut into pieces.

Each answer is written as the model's own template writes it (the line of its source that does is
the mark of the style), and is read here from what it looks like in a conversation.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from arenite.serve.tool_calls import CallReader, ToolCall, Tools
from arenite.serve.tool_styles import ToolStyle, style_of

CALL = {"name": "weather", "arguments": {"place": "Rome {1}", "days": [1, 2]}}
OTHER: dict[str, Any] = {"name": "time", "arguments": {}}
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}}
FUNCTIONS: list[dict[str, Any]] = [{"name": "weather", "parameters": PARAMETERS}, {"name": "time"}]
ROME, NOW = ((call["name"], call["arguments"]) for call in (CALL, OTHER))


def style(source: str) -> ToolStyle:
    found = style_of(f"{{% if tools %}}{source}{{% endif %}}")
    assert found is not None
    return found


def tagged(*calls: object) -> str:
    return "".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def word(part: str) -> str:
    """One of DeepSeek's control tokens."""
    return f"<\N{FULLWIDTH VERTICAL LINE}tool▁{part}\N{FULLWIDTH VERTICAL LINE}>"


def deepseek(*calls: dict[str, Any], fenced: bool) -> str:
    def one(call: dict[str, Any]) -> str:
        arguments = json.dumps(call["arguments"])
        if fenced:
            return f"function{word('sep')}{call['name']}\n```json\n{arguments}\n```"
        return f"{call['name']}{word('sep')}{arguments}"

    inner = "\n".join(f"{word('call▁begin')}{one(call)}{word('call▁end')}" for call in calls)
    return f"{word('calls▁begin')}{inner}{word('calls▁end')}"


HERMES = '<tool_call>\\n{"name": "\' }}'
LLAMA = "<|python_tag|>' + tool_call.name"
LLAMA_32 = 'Respond in the format {"name": function name, "parameters": dictionary of argument'
MISTRAL = "[TOOL_CALLS] ["
MISTRAL_NAMED = "[TOOL_CALLS]' + name + '[ARGS]"
QWEN_CODER = "<tool_call>\\n<function=' + tool_call.name + '>\\n"
DEEPSEEK, DEEPSEEK_31 = f"{word('calls▁begin')} ```json", word("calls▁begin")
BARE = json.dumps({"name": "weather", "parameters": CALL["arguments"]})
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=place>\nRome {1}\n</parameter>\n"
    "<parameter=days>\n[1, 2]\n</parameter>\n</function>\n</tool_call>"
)
GLM = "<tool_call>{{ tc.name }}<arg_key>{{ k }}</arg_key>"
GLM_CALL = (
    "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>Rome {1}</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>[1, 2]</arg_value>\n</tool_call>"
)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("source", "answer", "text", "calls"),
    [
        (HERMES, tagged(CALL), "", [ROME]),
        (HERMES, f"Let me look.\n{tagged(CALL, OTHER)}", "Let me look.\n", [ROME, NOW]),
        (HERMES, f"{tagged(CALL)}\n\n{tagged(OTHER)}\nDone.", "Done.", [ROME, NOW]),
        (HERMES, f"<tool_call>{json.dumps([CALL, OTHER])}</tool_call>", "", [ROME, NOW]),
        (HERMES, tagged(CALL).removesuffix("</tool_call>"), "", [ROME]),
        (
            HERMES,
            tagged({"name": "time", "arguments": {"a": "</tool_call>"}}),
            "",
            [("time", {"a": "</tool_call>"})],
        ),
        (HERMES, "plain < text <tool", "plain < text <tool", []),
        (HERMES, "<tool_call>no call</tool_call>", "<tool_call>no call</tool_call>", []),
        (QWEN_CODER, f"So:\n{CODER}\n{CODER}", "So:\n", [ROME, ROME]),
        (
            QWEN_CODER,
            CODER.replace("Rome {1}", "12"),
            "",
            [("weather", {"place": "12", "days": [1, 2]})],
        ),
        (MISTRAL, f"[TOOL_CALLS] {json.dumps([CALL, OTHER])}", "", [ROME, NOW]),
        (MISTRAL, json.dumps([CALL, OTHER]), "", [ROME, NOW]),
        (MISTRAL, " see [1] and [2]", " see [1] and [2]", []),
        (MISTRAL, "[1] says so", "[1] says so", []),
        (
            MISTRAL_NAMED,
            f"[TOOL_CALLS]weather[ARGS]{json.dumps(CALL['arguments'])}[TOOL_CALLS]time[ARGS]{{}}",
            "",
            [ROME, NOW],
        ),
        (MISTRAL_NAMED, "[TOOL_CALLS]time[CALL_ID]abcdefghi[ARGS]{}", "", [NOW]),
        (DEEPSEEK, deepseek(CALL, OTHER, fenced=True), "", [ROME, NOW]),
        (DEEPSEEK_31, "I look." + deepseek(CALL, OTHER, fenced=False), "I look.", [ROME, NOW]),
        ("<TOOLCALL>[", f"<TOOLCALL>{json.dumps([CALL])}</TOOLCALL>", "", [ROME]),
        ("<|tool_call|>", f"<|tool_call|>{json.dumps([CALL, OTHER])}", "", [ROME, NOW]),
        (
            "<|tool_call|> <|/tool_call|>",
            f"<|tool_call|>{json.dumps([CALL])}<|/tool_call|>",
            "",
            [ROME],
        ),
        ("<function=", "<function=time>{}</function>", "", [NOW]),
        ("<seed:tool_call>", CODER.replace("tool_call", "seed:tool_call"), "", [ROME]),
        (GLM, GLM_CALL, "", [ROME]),
        (GLM, "<tool_call>time\n</tool_call>", "", [NOW]),
        (GLM, GLM_CALL.replace("\n", ""), "", [ROME]),
        ("<tool_calls>[", f"<tool_calls>{json.dumps([CALL])}</tool_calls>", "", [ROME]),
        (LLAMA, f"\n{BARE}", "", [ROME]),
        (LLAMA, f"<|python_tag|>{BARE}; {BARE}", "", [ROME, ROME]),
        (LLAMA_32, BARE, "", [ROME]),
        (LLAMA_32, '{"name": "weather"', '{"name": "weather"', []),
        (LLAMA_32, "say {so}", "say {so}", []),
    ],
)
def test_an_answer_is_parted(
    source: str, answer: str, text: str, calls: list[tuple[str, dict[str, Any]]], seed: int
) -> None:
    reader = CallReader(Tools(style(source), FUNCTIONS, {}))
    random, rest, shown = Random(seed), answer, ""
    found: list[ToolCall] = []
    while rest:
        count = random.randint(1, 6) if seed else len(rest)
        part, new = reader.push(rest[:count])
        shown, found, rest = shown + part, found + new, rest[count:]
    part, new = reader.finish()
    found += new
    assert shown + part == text
    assert [(call.name, call.arguments) for call in found] == calls
    assert len({call.id for call in found}) == len(found)
    assert all(len(call.id) == 9 and call.id.isalnum() for call in found)


def test_text_comes_as_soon_as_it_is_none_of_a_call() -> None:
    reader = CallReader(Tools(style(HERMES), FUNCTIONS, {}))
    pieces = [reader.push(one)[0] for one in ("a", " <", "b", "<tool_", "x")]
    assert pieces == ["a", " ", "<b", "", "<tool_x"]


def test_each_call_comes_when_it_is_complete() -> None:
    reader = CallReader(Tools(style(HERMES), FUNCTIONS, {}))
    assert [call.name for call in reader.push(tagged(CALL) + "\n<tool")[1]] == ["weather"]
    assert [call.name for call in reader.push(tagged(OTHER).removeprefix("<tool"))[1]] == ["time"]
    assert reader.finish() == ("", [])


def test_no_more_calls_are_told_than_were_asked_for() -> None:
    reader = CallReader(Tools(style(HERMES), FUNCTIONS, {}, most=1))
    text, calls = reader.push(tagged(CALL, OTHER))
    assert (text, [call.name for call in calls]) == ("", ["weather"])


def test_deep_and_endless_calls_are_bounded() -> None:
    for answer in ("<tool_call>" + "[" * 100_000, "<tool_call>" + "{" * 3_000):
        reader = CallReader(Tools(style(HERMES), FUNCTIONS, {}))
        reader.push(answer)
        held, calls = reader.finish()
        assert (len(held) > 0, calls) == (True, [])


@pytest.mark.parametrize("source", [QWEN_CODER, GLM, MISTRAL_NAMED, HERMES, LLAMA])
def test_calls_without_an_end_are_read_in_little_time(source: str) -> None:
    answer = {
        QWEN_CODER: "<tool_call><function=f>" + "<parameter=a>\n1\n</parameter>" * 3000,
        GLM: "<tool_call>f" + "<arg_key>a</arg_key><arg_value>1</arg_value>" * 3000,
        MISTRAL_NAMED: "[TOOL_CALLS]" + "f[ARGS]" * 9000,
        HERMES: "<tool_call>" + "</tool_call>" * 300,
        LLAMA: '{"a": [' * 5000,
    }[source]
    reader = CallReader(Tools(style(source), FUNCTIONS, {}))
    reader.push(answer)
    reader.finish()


def test_styles_are_found_in_templates() -> None:
    assert style("<tool_call>") is not style("<tool_call> <function=")
    assert style_of("<tool_call> without any") is None
    assert style_of("{{ tools }}") is None

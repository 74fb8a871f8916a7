"""Templates mean what they mean to Jinja: our evaluator against Jinja's own, which is the judge."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from arenite.errors import AreniteError, InvalidArgument, InvalidFile
from arenite.generate.template import ChatTemplate
from tests.generate.template_expressions import random_expression
from tests.generate.template_statements import STATEMENTS
from tests.generate.templates import TALKS

#: Characters that templates trip over: quotes, ends of lines, letters that change their number.
ALPHABET = "ab<A>/ \n\"'\\ßİΣ\u2028é\N{FOX FACE}"


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pytest.fixture(scope="module")
def judge() -> ImmutableSandboxedEnvironment:
    """Jinja as transformers sets it up."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment.filters["tojson"] = to_json
    return environment


def judged(judge: ImmutableSandboxedEnvironment, source: str, **variables: Any) -> str | None:
    """What Jinja renders; None where it fails."""
    try:
        return judge.from_string(source).render(**variables)
    except Exception:  # templates fail in any way
        return None


def rendered(source: str, messages: list[dict[str, Any]], **variables: Any) -> str | None:
    try:
        return ChatTemplate(source, "model.gguf").render(messages, variables=variables)
    except AreniteError:
        return None


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_mean_what_they_mean_to_jinja(
    name: str, judge: ImmutableSandboxedEnvironment
) -> None:
    for talk in TALKS.values():
        expected = judged(judge, STATEMENTS[name], messages=talk)
        assert rendered(STATEMENTS[name], talk) == expected


@pytest.mark.parametrize("seed", range(4))
def test_expressions_mean_what_they_mean_to_jinja(
    seed: int, judge: ImmutableSandboxedEnvironment
) -> None:
    random = Random(seed)
    n_rendered = 0
    for _ in range(150):
        names = ["content", "role"]
        source = random_expression(random, ALPHABET, names, depth=random.randint(1, 4))
        given = {
            "content": "".join(random.choices(ALPHABET, k=random.randint(0, 12))),
            "role": "user",
        }
        source = "{{ " + source + " }}"
        expected = judged(judge, source, **given)
        if expected is not None and "object at 0x" in expected.lower():
            continue  # what prints as a place in memory is refused
        assert rendered(source, [], **given) == expected, (source, given)
        n_rendered += expected is not None
    assert n_rendered > 100


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("{{ 'x'.nix() }}", InvalidArgument, "UndefinedError: 'str object' has no attribute 'nix'"),
        ("{{ a.b }}", InvalidArgument, "UndefinedError: 'a' is undefined"),
        ("{{ messages[0].nix.y }}", InvalidArgument, "'dict object' has no attribute 'nix'"),
        ("{{ 'a' + 1 }}", InvalidArgument, "TypeError: unsupported operand .* 'str' and 'int'"),
        ("{{ 1 | nonsense }}", InvalidFile, "uses the filter 'nonsense', which is not there"),
        ("{{ 1 is nonsense }}", InvalidFile, "uses the test 'nonsense', which is not there"),
        ("{% include 'x' %}", InvalidFile, "statement that is not allowed: Include"),
        ("{{ messages.append(1) }}", InvalidFile, "uses list.append"),
        ("{{ {}.update({}) }}", InvalidFile, "uses dict.update"),
        ("{{ ''.encode() }}", InvalidFile, "uses str.encode"),
        ("{{ ''['__class__'] }}", InvalidFile, "uses str.__class__"),
        ("{{ messages[0].__init__ }}", InvalidFile, "uses dict.__init__"),
        ("{{ {(1, 2): 3} }}", InvalidFile, "uses a tuple as a key"),
        ("{{ raise_exception('no ' * 9999) }}", InvalidArgument, "refuses these messages: no no"),
        ("{% for x in", InvalidFile, "line 1"),
    ],
)
def test_errors_say_what_is_wrong(source: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        ChatTemplate(source, "model.gguf").render([{"role": "user", "content": "x"}])
    assert "model.gguf" in str(caught.value)
    assert len(str(caught.value)) < 500

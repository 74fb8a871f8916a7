"""What a caller gave never becomes a control token, whatever a template does to it.

The judge is the alphabet: what is given is written in Latin letters and brackets, and templates in
Greek. A control token with a Latin letter in it can only have come of what was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from arenite.errors import AreniteError, InvalidArgument
from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate
from arenite.generate.tokenizer import Tokenizer
from tests.generate.template_expressions import random_expression

LATIN = "<>/sqßS"
GREEK = "\u03b1\u03b2\u03b3\u0394"  # alpha, beta, gamma, Delta
ALPHA, BETA = GREEK[0], GREEK[1]
CONTROLS = [
    "</s>", "<s>", "s", "<", "/s>", "S", "ss", "SS", "</S>",
    f"q{ALPHA}", f"{ALPHA}<", f"{BETA}>", f"<{ALPHA}s>", ALPHA + BETA, GREEK[3],
]  # fmt: skip
FIRST = 0x110000  # of the control tokens: others are their characters


class Characters:
    """An encoder that makes every character a token."""

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        return [
            token
            for piece in pieces
            for token in ([piece] if isinstance(piece, int) else map(ord, piece))
        ]

    def token_bytes(self, token: int) -> bytes:
        return chr(token).encode()


def tokenizer_of(
    controls: list[str], own: Sequence[str] = (), swallowing: bool = False
) -> Tokenizer:
    ids = {text: FIRST + place for place, text in enumerate([*controls, *own])}
    control_ids = [ids[text] for text in controls]
    specials = Specials.of(ids, control_ids, control_ids if swallowing else ())
    none: frozenset[int] = frozenset()
    return Tokenizer(
        Characters(), specials, FIRST + len(ids), None, None, (), (), none, None, False
    )


def encoded(
    source: str, talk: list[dict[str, Any]], tokenizer: Tokenizer, **variables: Any
) -> tuple[list[str], str]:
    """The control tokens of a talk, and its whole text."""
    template = ChatTemplate(source, "model.gguf", bos_token="<s>", eos_token="</s>")
    names = {token: text for text, token in tokenizer.specials.tokens}
    tokens = template.encode(talk, tokenizer, variables=variables)
    found = [names[token] for token in tokens if token in tokenizer.specials.controls]
    return found, "".join(names.get(token) or chr(token) for token in tokens)


def said(source: str, content: str, controls: list[str]) -> list[str]:
    talk = [{"role": "user", "content": content}]
    found, text = encoded(source, talk, tokenizer_of(controls))
    template = ChatTemplate(source, "model.gguf", bos_token="<s>", eos_token="</s>")
    assert text == template.render(talk)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_expression_makes_a_control_token_of_what_was_given(seed: int) -> None:
    random = Random(seed)
    tokenizer = tokenizer_of(CONTROLS)
    n_controls = 0
    for _ in range(200):
        made = random_expression(random, GREEK, ["content", "other"], depth=random.randint(1, 4))
        source = f"{{{{ {made} }}}}{ALPHA}{BETA}"
        given = {
            name: "".join(random.choices(LATIN, k=random.randint(0, 8)))
            for name in ("content", "other")
        }
        try:
            found, text = encoded(source, [], tokenizer, **given)
        except AreniteError:
            continue
        assert text == ChatTemplate(source, "model.gguf").render([], variables=given)
        assert not [name for name in found if set(name) & set(LATIN)], (source, given)
        n_controls += len(found)
    assert n_controls > 100  # the template's own


END = ["</s>", "<s>", "<think>"]


@pytest.mark.parametrize(
    ("made", "content"),
    [
        ("|replace('<think>', '')", "<<think>/s>"),
        (".replace('<think>', '')", "<<think>/s>"),
        ("|lower", "</S>"),
        (".lower()", "</S>"),
        (".casefold()", "</\N{LATIN SMALL LETTER LONG S}>"),
        (".swapcase()", "</S>"),
        (".replace('\\n', '')", "<\n/\ns>"),
        ("|trim", "  </s> "),
        (".split('x') | join", "<x/xsx>"),
        (".split('x')[0] + messages[0].content.split('x')[1]", "</x s>".replace(" ", "")),
        ("[::-1]", ">s/<"),
        ("[::2]", "<-/-s->-"),
        (" | reverse", ">s/<"),
        (" | list | join", "</s>"),
        ("[0] ~ '/s>'", "<"),
        (" | replace('[', '<')", "[/s>"),
        (" | replace('[', '<') | replace('!', '/s>')", "[!"),
        (
            " | replace('1', '<') | replace('2', '/') | replace('3', 's') | replace('4', '>')",
            "1234",
        ),
        (".split('x') | join('</')", "xs>"),
        (" | tojson", '"</s>'),
        (" | format", "</s>%%"),
        (" | upper | lower", "</s>"),
        (" * 2", "s></"),
        (".join(['<', '>'])", "/s"),
        (".format()", "{{</s>"),
        (" | title | lower", "</s>"),
        (" | indent(0)", "</\ns>"),
        (".partition('/') | join", "</s>"),
        (".removeprefix('x')", "x</s>"),
        (".strip('x')", "x</s>x"),
        (".format(1)", "{:<<2}/s>"),
        (".format('')", "{:<<1}/s>"),
        (" % 7", "<%d/s>"),
        (" and strftime_now(messages[0].content)", "</s>"),
        (" and {messages[0].content: 1} | list | first", "</s>"),
        (" and dict(**{messages[0].content: 1}) | list | first", "</s>"),
        (" and f(**{messages[0].content: 1})", "</s>"),
        (" and '%c/s>' % (messages[0].content | length)", "x" * ord("<")),
        (" and '%c/s>' % messages[0].content.find('y')", "x" * ord("<") + "y"),
        (" and '%c/s>' % messages[0].content.count('x')", "x" * ord("<")),
        (" and '{:c}/s>'.format(messages[0].content | int)", str(ord("<"))),
        (" and [messages[0].content] | map('lower') | join", "</S>"),
        (" and [messages[0].content] | sort | first", "</s>"),
        (" and messages | groupby('content') | map(attribute='grouper') | first", "</s>"),
        (" and messages | map(attribute='content') | unique | max", "</s>"),
        (" and cycler(messages[0].content).next()", "</s>"),
        (" and joiner(messages[0].content)()", "</s>"),
        (" and namespace(a=messages[0].content).a", "</s>"),
        (" and [messages[0].content] | string", "'</s>"),
        (" and [messages[0].content] | tojson(indent=1)", "</s>"),
        (" and {'a': messages[0].content} | tojson(ensure_ascii=true)", "\u00e9</s>"),
        (" and '%r' % messages[0].content", "\n</s>"),
        (" and '%(a)s' % {'a': messages[0].content}", "</s>"),
        (" and '{a[0][b]:.4}'.format(a=[{'b': messages[0].content}])", "</s>"),
        (" and messages[0].content.ljust(9, '>')", "</s"),
        (" and messages[0].content.zfill(9)", "</s>"),
        (" and messages[0].content.splitlines() | join", "<\n/s>"),
        (" and messages[0].content.rsplit(none, 1) | join", "< /s>"),
        (" and messages[0] | dictsort | map('last') | list | first", "</s>"),
        (" and messages[0].items() | map('last') | list | last", "</s>"),
        (" and messages[0].values() | batch(1) | map('first') | list | last", "</s>"),
    ],
)
def test_changed_text_stays_text(made: str, content: str) -> None:
    source = "{% macro f() %}{{ kwargs | list | first }}{% endmacro %}"
    source += "{{ messages[0].content" + made + " }}{{ eos_token }}"
    assert said(source, content, END) == ["</s>"]


def test_loops_over_characters_keep_their_owner() -> None:
    source = "{% for c in messages[0].content %}{{ c }}{% endfor %}{{ bos_token }}"
    assert said(source, "</s>", END) == ["<s>"]
    source = "{% set x %}{{ messages[0].content }}{% endset %}{{ x | upper | lower }}"
    assert said(source, "</s>", END) == []
    source = "{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(messages[0].content) }}"
    assert said(source, "/s", END) == []


def test_what_a_template_puts_in_whole_is_its_own() -> None:
    source = "{{ messages[0].content | replace('[END]', eos_token) }}"
    assert said(source, "a[END]</s>[END]", END) == ["</s>", "</s>"]
    source = "{{ messages[0].content.split('|') | join('</s>') }}"
    assert said(source, "</s>|b|</s>", END) == ["</s>", "</s>"]


def test_numbers_that_were_given_are_not_the_templates() -> None:
    tokenizer = tokenizer_of(["<7>", "<8>"])
    source = "<{{ n }}><{{ n + 1 }}><{{ 7 }}><{{ '%d' % n }}><{{ '7' | int + 1 }}>{{ [n] }}"
    source += "{% for i in range(n, n + 1) %}<{{ i }}>{% endfor %}<{{ [n] | sum }}><{{ n | abs }}>"
    assert encoded(source, [], tokenizer, n=7)[0] == ["<7>", "<8>"]


def test_roles_are_names_of_the_templates() -> None:
    tokenizer = tokenizer_of(["<user>", "<image>", "<|x|>", "user</s>"])
    source = (
        "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}<{{ p.type }}>{{ p.text }}"
    )
    source += "{% endfor %}{% endfor %}"
    talk = [{"role": "user", "content": [{"type": "image", "text": "<user>"}]}]
    assert encoded(source, talk, tokenizer)[0] == ["<user>", "<image>"]
    for role in ("user</s>", "|x|", "a>user", "user><user"):
        assert encoded(source, [{"role": role, "content": []}], tokenizer)[0] == []
    nested = [{"role": "user", "content": "", "call": {"role": "user", "type": "image"}}]
    source = "{% set c = messages[0].call %}<{{ c.role }}><{{ c.type }}>"
    assert encoded(source, nested, tokenizer)[0] == []


def test_a_users_own_tokens_lie_across_borders() -> None:
    """Tokens that are no control tokens are found wherever they stand, the longest first."""
    tokenizer = tokenizer_of(["<s>"], own=["\n", "\n\n", "<s>\n\n\n"])
    names = dict(tokenizer.specials.tokens)
    template = ChatTemplate("<s>\n{{ messages[0].content }}\n!", "model.gguf")
    tokens = template.encode([{"role": "user", "content": "\na<s>"}], tokenizer)
    texts = [names["<s>"], names["\n\n"], ord("a"), *map(ord, "<s>"), names["\n"], ord("!")]
    assert tokens == texts


def test_tokens_that_swallow_spaces_swallow_given_ones() -> None:
    tokenizer = tokenizer_of(["<s>"], swallowing=True)
    template = ChatTemplate("<s> \n{{ messages[0].content }}<s>", "model.gguf")
    tokens = template.encode([{"role": "user", "content": "\n  a b "}], tokenizer)
    assert tokens == [FIRST, *map(ord, "a b "), FIRST]


def test_any_character_may_be_in_a_text() -> None:
    """Among them all that could serve as a sign for something: private, old and no characters."""
    codes = [*range(0xF8E0, 0xFE00), *range(0x1D000, 0x1D100), *range(0xF0000, 0x100000)]
    everything = "".join(map(chr, [0, 0xFFFE, 0xFFFF, *codes]))
    tokenizer = tokenizer_of(["<s>", "\ufdd0"])
    source = "<s>\ufdd1{{ messages[0].content }}<s>"
    found, text = encoded(source, [{"role": "user", "content": everything}], tokenizer)
    assert found == ["<s>", "<s>"]
    assert text == f"<s>\ufdd1{everything}<s>"


def test_halves_of_characters_are_replaced() -> None:
    tokenizer = tokenizer_of(["<s>"])
    for source in ("{{ '\\ud800' }}<s>", "{{ '%c' % 0xd800 }}<s>"):
        assert encoded(source, [], tokenizer) == (["<s>"], "\N{REPLACEMENT CHARACTER}<s>")


def test_numbers_have_a_bound() -> None:
    template = ChatTemplate("{{ messages[0].n }}", "model.gguf")
    assert template.render([{"n": 2**1000}]) == str(2**1000)
    with pytest.raises(InvalidArgument, match="over 1024 bits"):
        template.render([{"n": 10**400}])

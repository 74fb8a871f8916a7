"""The server's page in a browser: one talks, and sees the machine at work."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from arenite.serve.served_model import ServedText
from tests.serve.running import Address
from tests.show.browser import needs_chromium
from tests.show.devtools import Page, browser

#: Whether figures of the machine have come.
FIGURES = "/\\d/.test(document.querySelector('.machine dd')?.textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@needs_chromium
def test_one_talks_and_sees_the_machine(page: Page, server: Address, talker: ServedText) -> None:
    page.open(f"{server.url}/")
    page.wait_for(FIGURES)
    assert page.evaluate("document.querySelector('h1').textContent") == "tiny"
    page.evaluate("document.querySelector('.write textarea').focus()")
    page.evaluate("document.querySelector('details').open = true")
    page.evaluate(
        "(() => { const seed = document.querySelectorAll('.settings input')[2];"
        "seed.value = '3'; seed.dispatchEvent(new Event('change')) })()"
    )
    page.type("in the air")
    page.press("Enter")
    page.wait_for("document.querySelector('.assistant .took')")
    said = [{"role": "user", "content": "in the air"}]
    tokens = talker.engine.chat_tokens(said)
    text = talker.engine.submit(tokens, seed=3, max_tokens=512).text()
    # The page makes Markdown of the answer: its letters are there in the same order.
    shown = page.evaluate(
        "[...document.querySelectorAll('.assistant > :not(.took)')]"
        ".map((e) => e.textContent).join('')"
    )
    letters = "".join(filter(str.isalnum, text))
    assert letters
    assert "".join(filter(str.isalnum, shown)) == letters
    assert "a second" in page.evaluate("document.querySelector('.took').textContent")
    assert page.errors == []


@needs_chromium
def test_esc_ends_an_answer(page: Page, server: Address, talker: ServedText) -> None:
    before = talker.engine.stats().n_cancelled
    page.open(f"{server.url}/?again")
    page.wait_for("document.querySelector('.write textarea')")
    page.evaluate("document.querySelector('.write textarea').focus()")
    page.type("the")
    # The answer comes in no time: it is stopped as soon as it has begun.
    page.evaluate(
        "new MutationObserver(() => { if (document.querySelector('.assistant.busy p'))"
        " document.querySelector('.write textarea').dispatchEvent("
        "new KeyboardEvent('keydown', { key: 'Escape' })) })"
        ".observe(document.querySelector('.talk'), { childList: true, subtree: true })"
    )
    page.press("Enter")
    page.wait_for("document.querySelector('.assistant .took')")
    how = page.evaluate("document.querySelector('.took').textContent")
    assert "stopped" in how or talker.engine.stats().n_cancelled == before
    assert page.evaluate("document.querySelector('.send').textContent") == "Send"


@needs_chromium
def test_what_a_server_does_not_take_can_be_sent_again(page: Page, server: Address) -> None:
    page.open(f"{server.url}/?again2")
    page.wait_for("document.querySelector('.write textarea')")
    page.evaluate(
        "window.usual = window.fetch; window.fetch = async () => { throw new TypeError('gone') }"
    )
    page.evaluate("document.querySelector('.write textarea').focus()")
    page.type("in the air")
    page.press("Enter")
    page.wait_for("document.querySelector('.assistant .problem')")
    assert page.evaluate("document.querySelector('.write textarea').value") == "in the air"
    page.evaluate("window.fetch = window.usual")
    page.press("Enter")
    page.wait_for("document.querySelector('.assistant .took')")


@needs_chromium
def test_a_new_conversation_has_nothing_of_the_one_before(page: Page, server: Address) -> None:
    """Also where an answer was on its way."""
    page.open(f"{server.url}/?new")
    page.wait_for("document.querySelector('.write textarea')")
    said = page.evaluate(
        "(async () => { const bodies = []; let stop;"
        "const chat = new Chat(element('div'), async (body, signal) => {"
        "  bodies.push(body.messages); const coder = new TextEncoder();"
        "  return { body: new ReadableStream({ start(to) {"
        '    to.enqueue(coder.encode(\'data: {"choices":[{"delta":{"content":"x"}}]}\\n\\n\'));'
        "    signal.addEventListener('abort', () =>"
        "      to.error(new DOMException('', 'AbortError'))) } }) } });"
        "chat.input.value = 'first'; const done = chat.send();"
        "await new Promise((go) => setTimeout(go, 100)); chat.clear(); await done;"
        "chat.input.value = 'second'; const next = chat.send(); chat.stop(); await next;"
        "return bodies[1].map((one) => one.content) })()"
    )
    assert said == ["second"]


@needs_chromium
def test_lists_of_two_kinds_are_two(page: Page, server: Address) -> None:
    page.open(f"{server.url}/?lists")
    page.wait_for("document.querySelector('.talk')")
    text = "- a\n  1. in a\n- b\n1. one\n\n2. two\n- c\n"
    made = page.evaluate(
        f"markdown({json.dumps(text)}).map((e) => [e.tagName, [...e.children].length])"
    )
    assert made == [["UL", 2], ["OL", 2], ["UL", 1]]


@needs_chromium
@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (1280, True), (380, False)])
def test_nothing_is_cut_off_or_unreadable(
    page: Page, server: Address, width: int, is_dark: bool
) -> None:
    page.open(f"{server.url}/?{width}{is_dark}", width=width, is_dark=is_dark)
    page.wait_for(FIGURES)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colours = page.evaluate(
        "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name]"
        ".match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0))"
    )
    assert (colours[0] > colours[1]) is is_dark
    assert abs(colours[0] - colours[1]) > 400


@needs_chromium
def test_what_a_model_writes_is_never_markup(page: Page, server: Address) -> None:
    page.open(f"{server.url}/?hostile")
    page.wait_for("document.querySelector('.talk')")
    text = (
        "<img src=x onerror=alert(1)> **<b>bold</b>** `<i>` [a](javascript:alert(1)) "
        "[b](https://example.org/?q=<s>)\n\n# <script>1</script>\n\n"
        "| <u> | b |\n|--|--|\n| 1 | 2 |\n\n"
        "```html\n<marquee>\n```\n- <video>\n  1. two\n> <hr>\n"
    )
    made = page.evaluate(
        f"(() => {{ const host = element('div', {{}}, markdown({json.dumps(text)}));"
        "return [host.textContent, [...host.querySelectorAll('*')].map((e) => e.tagName),"
        "[...host.querySelectorAll('a')].map((e) => e.href)] })()"
    )
    said, tags, links = made
    for mark in ("<img src=x onerror=alert(1)>", "<b>", "<i>", "<script>1", "<u>", "<marquee>"):
        assert mark in said
    assert not {*tags} & {"IMG", "SCRIPT", "B", "I", "U", "MARQUEE", "VIDEO", "HR", "S"}
    assert {"STRONG", "CODE", "H3", "TABLE", "PRE", "UL", "OL", "BLOCKQUOTE"} <= {*tags}
    assert links == ["https://example.org/?q=%3Cs%3E"]

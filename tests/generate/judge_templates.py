"""Writes `templates_reference.json`: what transformers renders of the templates and talks.

    python -m tests.generate.judge_templates [folder of .jinja files]

With a folder it also compares Arenite with transformers on the templates there, with and without
tools, and prints how many texts it compared, or fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from arenite.errors import AreniteError
from arenite.generate.template import ChatTemplate
from tests.generate.templates import BOS, EOS, TALKS, TEMPLATES, TOOLS

REFERENCE = Path(__file__).parent / "templates_reference.json"


def rendered(template: str, talk: str, answer: bool, tools: Any = None) -> str | None:
    """The text; None where the template refuses or fails."""
    try:
        found, _ = render_jinja_template(
            conversations=[TALKS[talk]],
            tools=tools,
            chat_template=template,
            add_generation_prompt=answer,
            bos_token=BOS,
            eos_token=EOS,
        )
    except Exception:  # templates fail on what they do not expect in any way
        return None
    text: str = found[0]
    return text


def judge_folder(folder: Path) -> None:
    n_texts = n_refused = 0
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        if "|safe" in source:  # makes transformers escape the quotes of JSON
            continue
        template = ChatTemplate(source, path.name, bos_token=BOS, eos_token=EOS)
        for talk, messages in TALKS.items():
            for answer in (False, True):
                for tools in (None, TOOLS):
                    expected = rendered(source, talk, answer, tools)
                    ours: str | None
                    try:
                        ours = template.render(messages, answer=answer, variables={"tools": tools})
                    except AreniteError:
                        ours = None
                    assert ours == expected, (path, talk, answer, tools)
                    n_texts, n_refused = n_texts + 1, n_refused + (ours is None)
    print(f"{folder}: {n_texts} texts agree, {n_refused} of them refused by both")


def main() -> None:
    results = {
        f"{name} {talk} {answer}": rendered(template, talk, answer)
        for name, template in TEMPLATES.items()
        for talk in TALKS
        for answer in (False, True)
    }
    REFERENCE.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(results)} texts written")
    if sys.argv[1:]:
        judge_folder(Path(sys.argv[1]))


if __name__ == "__main__":
    main()

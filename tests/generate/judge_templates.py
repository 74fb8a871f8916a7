"""Writes `templates_reference.json`: what transformers renders of the templates and talks.

python -m tests.generate.judge_templates
"""

from __future__ import annotations

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from tests.generate.templates import BOS, EOS, TALKS, TEMPLATES

REFERENCE = Path(__file__).parent / "templates_reference.json"


def rendered(template: str, talk: str, answer: bool) -> str | None:
    """The text; None where the template refuses."""
    try:
        found, _ = render_jinja_template(
            conversations=[TALKS[talk]],
            chat_template=template,
            add_generation_prompt=answer,
            bos_token=BOS,
            eos_token=EOS,
        )
    except TemplateError:
        return None
    text: str = found[0]
    return text


def main() -> None:
    results = {
        f"{name} {talk} {answer}": rendered(template, talk, answer)
        for name, template in TEMPLATES.items()
        for talk in TALKS
        for answer in (False, True)
    }
    REFERENCE.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(results)} texts written")


if __name__ == "__main__":
    main()

"""Facts out of plain text, as JSON that fits a schema, whatever the model would rather say.

python examples/extract.py [MODEL]                        (needs: pip install 'arenite[grammar]')
"""

from __future__ import annotations

import json
import sys

import arenite

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "city": {"enum": ["Oslo", "Lima", "Kyoto", "other"]},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
TEXTS = (
    "Bob, who turned 31 last week, moved to Oslo in spring.",
    "My neighbour Ana is 54. She was born in Lima and still lives there.",
)


def main(model: str = "smollm2-135m-instruct") -> None:
    with arenite.load(model, context=512) as lm:
        for text in TEXTS:
            question = f"{text} Who is it, how old, and where do they live? Answer in JSON."
            written = lm.chat(
                [{"role": "user", "content": question}],
                json_schema=SCHEMA,
                temperature=0,
                max_tokens=80,
            )
            print(json.loads("".join(written)))


if __name__ == "__main__":
    main(*sys.argv[1:])

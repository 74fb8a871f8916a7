"""Two stories written at the same time by one model, each in a place of its own in the plan.

python examples/two_stories.py [MODEL]
"""

from __future__ import annotations

import sys
from itertools import zip_longest

import arenite

BEGINNINGS = ("The captain looked at the sea and", "In the old library a mouse")


def main(model: str = "smollm2-135m-instruct") -> None:
    with arenite.load(model, context=256, sessions=len(BEGINNINGS)) as lm:
        stories = [*BEGINNINGS]
        texts = [lm.session().generate(text, seed=4, max_tokens=24) for text in BEGINNINGS]
        for pieces in zip_longest(*texts, fillvalue=""):
            stories = [story + piece for story, piece in zip(stories, pieces, strict=True)]
        print("\n\n".join(stories))


if __name__ == "__main__":
    main(*sys.argv[1:])

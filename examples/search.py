"""Search by meaning: sentences become vectors, and the nearest ones answer.

python examples/search.py [MODEL]               (a model for embeddings; all-minilm, 91 MB, if none)
"""

from __future__ import annotations

import sys

import arenite

NOTES = (
    "The bakery on the corner closes at six.",
    "Water boils at a lower temperature in the mountains.",
    "Her train to the coast was two hours late.",
    "Bread dough needs time and warmth to rise.",
)


def main(model: str = "all-minilm") -> None:
    with arenite.load(model) as lm:
        notes = lm.embed(NOTES)  # one row of length 1 for each
        for question in ("What makes bread rise?", "Why does cooking take longer on a peak?"):
            likeness = (lm.embed(question) @ notes.T)[0]
            print(question)
            for k in likeness.argsort()[::-1][:2]:
                print(f"  {likeness[k]:.2f}  {NOTES[k]}")


if __name__ == "__main__":
    main(*sys.argv[1:])

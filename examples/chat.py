"""A conversation in a few lines: the answer as it is written, then what it took.

python examples/chat.py [MODEL]         (a name, a file or a folder; SmolLM2, 94 MB, if none)
"""

from __future__ import annotations

import sys

import arenite


def main(model: str = "smollm2-135m-instruct") -> None:
    with arenite.load(model, context=1024) as lm:
        print(f"{lm.name}: {lm.plan.total_nbytes / 2**20:.1f} MiB, all of it planned\n")
        talk = [{"role": "system", "content": "You answer in one short sentence."}]
        for question in ("What do owls eat?", "And when do they hunt?"):
            talk.append({"role": "user", "content": question})
            print(f"> {question}")
            answer = ""
            # What the conversation shares with the last turn is not computed again.
            for piece in lm.pieces(lm.chat_tokens(talk), temperature=0, max_tokens=40):
                print(piece.text, end="", flush=True)
                answer += piece.text
            print(f"\n  [{piece.finish}; {piece.stats}]\n")
            talk.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main(*sys.argv[1:])

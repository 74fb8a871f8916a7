"""Writes `characters_reference.json`: what llama.cpp takes every character for when it cuts words.

    python -m tests.generate.judge_characters

Needs llama-cpp-python. A vocabulary of bytes has merges of a letter, a digit and a sign with every
byte behind them: a merge says that the character stands in one word with what is before it.
"""

from __future__ import annotations

import json
import tempfile
from itertools import groupby
from pathlib import Path

import llama_cpp

from arenite.generate.bpe import BYTE_OF_CHARACTER
from tests.generate.vocabularies import write_vocabulary

REFERENCE = Path(__file__).parent / "characters_reference.json"
#: What a character is that is in one word with these.
KINDS = {"a": "letter", "1": "number", "!": "sign"}


def vocabulary(path: Path) -> llama_cpp.Llama:
    merges = [f"{lead} {byte}" for lead in KINDS for byte in BYTE_OF_CHARACTER]
    tokens = [*BYTE_OF_CHARACTER, *(merge.replace(" ", "") for merge in merges)]
    keys = {
        "ggml.model": "gpt2",
        "ggml.pre": "gpt-2",
        "ggml.tokens": tokens,
        "ggml.token_type": [1] * len(tokens),
        "ggml.merges": merges,
        "ggml.bos_token_id": 0,
        "ggml.eos_token_id": 0,
    }
    return llama_cpp.Llama(str(write_vocabulary(path, keys)), vocab_only=True, verbose=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = vocabulary(Path(folder) / "bytes.gguf")
        vocab = model._model.vocab
        found = (llama_cpp.llama_token * 8)()

        def kind(code: int) -> str:
            for lead, name in KINDS.items():
                raw = (lead + chr(code)).encode()
                llama_cpp.llama_tokenize(vocab, raw, len(raw), found, len(found), False, False)
                if found[0] >= 256:
                    return name
            return "space"

        codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
        runs = [(next(run), name) for name, run in groupby(codes, kind)]
    REFERENCE.write_text(json.dumps(runs, separators=(",", ":")) + "\n")
    print(f"{len(runs)} runs of characters")


if __name__ == "__main__":
    main()

"""Writes `tokens_reference.json`: small vocabularies, and what llama.cpp makes of texts with them.

    python -m tests.generate.judge_tokens [~/.cache/arenite/models]

Needs llama-cpp-python, sentencepiece and tokenizers. With a folder of models it also compares
Arenite with llama.cpp and transformers on theirs; it prints what it compared, or fails.
"""

from __future__ import annotations

import ctypes
import io
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import llama_cpp
import sentencepiece
import transformers
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as LibraryTokenizer

from arenite.errors import NotSupported
from arenite.frontends.gguf import GgufFile
from arenite.generate.tokenizer import Tokenizer
from tests.generate.corpus import TEXTS, random_texts
from tests.generate.vocabularies import REFERENCE, write_vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"
#: One of each family of rules that llama.cpp cuts by the model's own patterns.
FAMILIES = (
    "default gpt-2 smollm llama-bpe dbrx glm4 qwen2 qwen35 minicpm5 deepseek-coder deepseek-v3 "
    "falcon bloom viking bailingmoe seed-coder"
).split()
#: llama.cpp writes their patterns with a-z for small letters: judged on ASCII.
ASCII_FAMILIES = ["gpt-4o", "tekken"]


def byte_pairs() -> dict[str, Any]:
    """Byte pairs trained on the texts, with control tokens and a user's own."""
    library = LibraryTokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(TEXTS, trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    own = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", "    "]
    kinds = [NORMAL] * len(tokens) + [CONTROL] * 3 + [USER_DEFINED] * 2
    return {
        "ggml.model": "gpt2",
        "ggml.tokens": tokens + own,
        "ggml.token_type": kinds,
        "ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "ggml.bos_token_id": len(tokens) + 1,
        "ggml.eos_token_id": len(tokens) + 2,
    }


def character_pairs() -> dict[str, Any]:
    """Pairs of characters, with bytes for those that are no token, as Gemma 4 has them."""
    library = LibraryTokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, limit_alphabet=200, show_progress=False
    )
    clean = [text.replace(" ", SPACE) for text in TEXTS if "\0" not in text]
    library.train_from_iterator([*clean, "\n" * 64], trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "ggml.model": "gemma4",
        "ggml.tokens": tokens,
        "ggml.token_type": [CONTROL] * 3
        + [UNKNOWN]
        + [BYTE] * 256
        + [NORMAL] * (len(tokens) - 260),
        "ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "ggml.bos_token_id": 2,
        "ggml.eos_token_id": 1,
        "ggml.unknown_token_id": 3,
        "ggml.padding_token_id": 0,
    }


def scored_pieces(kind: str, adds_space: bool) -> dict[str, Any]:
    """Pieces trained by SentencePiece; `kind` is how it trains them, which decides the scores."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t for t in TEXTS if t and "\0" not in t),
        model_writer=written,
        vocab_size=700,
        model_type=kind,
        byte_fallback=True,
        character_coverage=0.98,
        user_defined_symbols=["<tool>"],
        hard_vocab_limit=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    found = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    ids = range(found.get_piece_size())

    def kind_of(token: int) -> int:
        if found.is_byte(token):
            return BYTE
        if found.is_unknown(token):
            return UNKNOWN
        if found.is_control(token):
            return CONTROL
        return USER_DEFINED if found.id_to_piece(token) == "<tool>" else NORMAL

    return {
        "ggml.model": "llama",
        "ggml.tokens": [found.id_to_piece(token) for token in ids],
        "ggml.scores": [found.get_score(token) for token in ids],
        "ggml.token_type": [kind_of(token) for token in ids],
        "ggml.bos_token_id": found.bos_id(),
        "ggml.eos_token_id": found.eos_id(),
        "ggml.unknown_token_id": found.unk_id(),
        "ggml.add_space_prefix": adds_space,
    }


def phi_like() -> dict[str, Any]:
    """Pieces whose special tokens take the spaces after them along, by the model's name."""
    keys = scored_pieces("bpe", True)
    keys["ggml.tokens"] = keys["ggml.tokens"] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    keys["ggml.scores"] = keys["ggml.scores"] + [0.0] * 3
    keys["ggml.token_type"] = keys["ggml.token_type"] + [CONTROL] * 3
    return {**keys, "general.name": "Like Phi-3"}


def word_pieces() -> dict[str, Any]:
    """WordPiece trained on the texts, marked as GGUF files mark them."""
    library = LibraryTokenizer(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=special, limit_alphabet=200, show_progress=False
    )
    clean = [text.lower() for text in TEXTS if SPACE not in text and "\0" not in text]
    library.train_from_iterator(clean, trainer)
    vocabulary = library.get_vocab()
    tokens = sorted(vocabulary.keys() - {"##"}, key=lambda token: vocabulary[token])
    return bert_keys(tokens, special)


def bert_keys(tokens: list[str], special: list[str]) -> dict[str, Any]:
    def marked(token: str) -> str:
        if token in special:
            return token
        return token[2:] if token.startswith("##") else SPACE + token

    ids = {token: i for i, token in enumerate(tokens)}
    return {
        "ggml.model": "bert",
        "ggml.tokens": [marked(token) for token in tokens],
        "ggml.token_type": [CONTROL if token in special else NORMAL for token in tokens],
        "ggml.bos_token_id": ids["[CLS]"],
        "ggml.cls_token_id": ids["[CLS]"],
        "ggml.seperator_token_id": ids["[SEP]"],
        "ggml.unknown_token_id": ids["[UNK]"],
    }


class Judge:
    """llama.cpp with a vocabulary."""

    def __init__(self, path: Path) -> None:
        self._model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    def encode(self, text: str, *, special: bool, ends: bool) -> list[int]:
        raw = text.encode()
        found: list[int] = self._model.tokenize(raw, add_bos=ends, special=special) if raw else []
        return found

    def end_tokens(self) -> list[int]:
        vocab = self._model._model.vocab
        n_tokens = self._model.n_vocab()
        return [t for t in range(n_tokens) if llama_cpp.llama_vocab_is_eog(vocab, t)]

    def token_bytes(self, token: int) -> bytes:
        found = ctypes.create_string_buffer(8192)
        vocab = self._model._model.vocab
        nbytes = llama_cpp.llama_token_to_piece(vocab, token, found, len(found), 0, False)
        assert nbytes >= 0
        return found.raw[:nbytes]


def vocabularies() -> dict[str, dict[str, Any]]:
    return {
        "bytes": {"ggml.pre": "gpt-2", **byte_pairs()},
        "characters": character_pairs(),
        "merged": scored_pieces("bpe", True),
        "swallowing": phi_like(),
        "likely": scored_pieces("unigram", False),
        "words": word_pieces(),
    }


def judged(judge: Judge, given: Iterable[str]) -> dict[str, Any]:
    texts = list(given)
    return {
        "plain": [judge.encode(text, special=False, ends=False) for text in texts],
        "special": [judge.encode(text, special=True, ends=True) for text in texts],
        "end_tokens": judge.end_tokens(),
    }


def compare(name: str, tokenizer: Tokenizer, judge: Judge, texts: list[str]) -> None:
    theirs_only = set(judge.end_tokens()) - tokenizer.end_tokens
    # A `</s>` that merges make of text is a tag like any other; llama.cpp takes it for an end.
    assert tokenizer.end_tokens <= set(judge.end_tokens()), name
    assert {tokenizer.token_bytes(token) for token in theirs_only} <= {b"</s>"}, name
    for text in filter(None, texts):
        for special in (False, "</s>" not in text) if theirs_only else (False, True):
            ours = tokenizer.encode(text, special=special)
            theirs = judge.encode(text, special=special, ends=True)
            assert ours == theirs, (name, text, special, ours, theirs)
    for token in range(tokenizer.n_tokens):
        expected = judge.token_bytes(token)
        if token not in theirs_only and not expected.startswith(b"[UNK_BYTE"):
            assert tokenizer.token_bytes(token) == expected, (name, token)
    print(f"{name}: {len(texts)} texts and {len(tokenizer.end_tokens)} ends agree with llama.cpp")


def judge_model(path: Path, texts: list[str], folder: Path) -> None:
    """A real vocabulary, cut as its model has it and, for byte pairs, in every other way too."""
    metadata = GgufFile.open(path).metadata
    try:
        tokenizer = Tokenizer.of_gguf(metadata)
    except NotSupported as error:
        print(f"{path.name} is not read: {error}")
        return
    compare(path.name, tokenizer, Judge(path), texts)
    if "smollm" not in path.name.lower():  # one is enough
        return
    keys = {
        f"ggml.{name}": metadata.array(f"tokenizer.ggml.{name}").tolist()
        for name in ("tokens", "token_type", "merges")
    }
    ids = {
        f"ggml.{n}_token_id": metadata.integer(f"tokenizer.ggml.{n}_token_id")
        for n in ("bos", "eos")
    }
    for family in FAMILIES:
        given = {"ggml.model": "gpt2", "ggml.pre": family, **keys, **ids}
        other = write_vocabulary(folder / "other.gguf", given)
        tokenizer = Tokenizer.of_gguf(GgufFile.open(other).metadata)
        compare(f"{path.name} as {family}", tokenizer, Judge(other), texts)


def judge_folder(path: Path, texts: list[str], scratch: Path) -> None:
    """A Hugging Face folder, against transformers and, as a GGUF vocabulary, against llama.cpp."""
    judge = transformers.AutoTokenizer.from_pretrained(path)
    tokenizer = Tokenizer.of_folder(path)
    for text in texts:
        ours, theirs = tokenizer.encode(text, special=True), judge.encode(text)
        assert ours == theirs, (path, text, ours, theirs)
        plain = tokenizer.encode(text, ends=False)
        theirs = judge.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert plain == theirs, (path, text, plain, theirs)
        # Its decoder takes away some of the spaces before signs.
        decoded = judge.decode(plain, skip_special_tokens=True).replace(" ", "")
        assert tokenizer.decode(plain).replace(" ", "") == decoded, (path, text)
    print(f"{path.name}: {len(texts)} texts agree with transformers")
    words = path / "vocab.txt"
    if words.exists():
        tokens, special = words.read_text().splitlines(), judge.all_special_tokens
        other = write_vocabulary(scratch / "words.gguf", bert_keys(tokens, special))
        metadata = GgufFile.open(other).metadata
        compare(f"{path.name} as GGUF", Tokenizer.of_gguf(metadata), Judge(other), texts)


def main() -> None:
    texts, fuzz = [*TEXTS, *random_texts(60, seed=1)], random_texts(3000, seed=2)
    kinds = vocabularies()
    results: dict[str, Any] = {}
    families: dict[str, Any] = {}
    ascii_families: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, keys in kinds.items():
            path = write_vocabulary(folder / f"{name}.gguf", keys)
            results[name] = judged(Judge(path), texts)
            compare(name, Tokenizer.of_gguf(GgufFile.open(path).metadata), Judge(path), fuzz)
        for family in FAMILIES + ASCII_FAMILIES:
            keys = {**kinds["bytes"], "ggml.pre": family}
            judge = Judge(write_vocabulary(folder / f"{family}.gguf", keys))
            if family in FAMILIES:
                # Only what differs from GPT-2's way, to keep the file small.
                pairs = enumerate(
                    zip(judged(judge, texts)["plain"], results["bytes"]["plain"], strict=True)
                )
                families[family] = {str(i): found for i, (found, usual) in pairs if found != usual}
            else:
                ascii_families[family] = judged(judge, filter(str.isascii, texts))["plain"]
        written = {
            "vocabularies": kinds,
            "results": results,
            "families": families,
            "ascii_families": ascii_families,
        }
        REFERENCE.write_text(json.dumps(written, separators=(",", ":")) + "\n")
        models = Path(sys.argv[1]) if sys.argv[1:] else folder / "none"
        for path in sorted(models.rglob("*.gguf")):
            judge_model(path, [*texts, *fuzz], folder)
        for path in sorted(models.rglob("tokenizer.json")):
            judge_folder(path.parent, [*texts, *fuzz], folder)


if __name__ == "__main__":
    main()

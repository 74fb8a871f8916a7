"""The parts of a tokenizer in a GGUF file's metadata, the keys that begin with `tokenizer.`."""

from __future__ import annotations

import re

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored_tensor import quoted
from arenite.frontends.tokenizer_json.check import MAX_ADDED_TOKENS
from arenite.generate.bpe import BytePairs, byte_numbers, rule_of
from arenite.generate.merges import read_pairs, without_controls
from arenite.generate.parts import Encoder, Parts
from arenite.generate.sentencepiece import ScoredPieces
from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate
from arenite.generate.texts import Texts
from arenite.generate.vocabulary import Vocabulary, read_texts, special_id
from arenite.generate.wordpiece import WordPieces


def read_gguf(metadata: Metadata) -> Parts:
    """Read and check the vocabulary and what goes with it."""
    model = metadata.text("tokenizer.ggml.model")
    if model not in _READERS:
        raise NotSupported(
            f"{metadata.path}: its tokenizer is a {quoted(model)}; Arenite has gpt2 and gemma4 "
            "(byte pairs), llama (SentencePiece) and bert (WordPiece)"
        )
    return _READERS[model](metadata)


def _byte_pairs(metadata: Metadata) -> Parts:
    rule, texts = rule_of(metadata), read_texts(metadata)
    others = {} if rule.as_text else byte_numbers(len(texts))
    pairs = read_pairs(metadata, texts, others)
    vocabulary = Vocabulary.of(metadata, texts, pairs[:, 2])
    pairs = without_controls(metadata, pairs, vocabulary, others)
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", rule.adds_bos)
    adds_eos = metadata.flag("tokenizer.ggml.add_eos_token", False)
    bos = special_id(metadata, len(vocabulary), "bos")
    eos = special_id(metadata, len(vocabulary), "eos")
    encoder = BytePairs(vocabulary, pairs, rule)
    return _parts(metadata, vocabulary, encoder, bos, eos, eos, (adds_bos, adds_eos), False)


def _scored_pieces(metadata: Metadata) -> Parts:
    vocabulary = Vocabulary.of(metadata, read_texts(metadata))
    adds_space = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", True)
    adds_eos = metadata.flag("tokenizer.ggml.add_eos_token", False)
    bos = special_id(metadata, len(vocabulary), "bos", 1)
    eos = special_id(metadata, len(vocabulary), "eos", 2)
    encoder = ScoredPieces(metadata, vocabulary, adds_space)
    return _parts(metadata, vocabulary, encoder, bos, eos, eos, (adds_bos, adds_eos), adds_space)


def _word_pieces(metadata: Metadata) -> Parts:
    """Texts stand between cls and sep, as BERT calls them; every word begins with a space."""
    vocabulary = Vocabulary.of(metadata, read_texts(metadata))
    first = special_id(metadata, len(vocabulary), "bos", 101)
    last = special_id(metadata, len(vocabulary), "seperator", 102)
    eos = special_id(metadata, len(vocabulary), "eos")
    encoder = WordPieces(metadata, vocabulary)
    return _parts(metadata, vocabulary, encoder, first, eos, last, (True, True), True)


_READERS = {
    "gpt2": _byte_pairs,
    "gemma4": _byte_pairs,
    "llama": _scored_pieces,
    "bert": _word_pieces,
}


def _parts(
    metadata: Metadata,
    vocabulary: Vocabulary,
    encoder: Encoder,
    first: int | None,
    eos: int | None,
    last: int | None,
    adds: tuple[bool, bool],
    drops_first_space: bool,
) -> Parts:
    for place, token, is_added in zip(("begin", "end"), (first, last), adds, strict=True):
        if is_added and token is None:
            raise InvalidFile(
                f"{metadata.path}: a text is to {place} with a token of its own, and the file does "
                "not say which"
            )
    ids = {vocabulary.texts[token]: token for token in vocabulary.controls}
    ids |= {vocabulary.texts[token]: token for token in vocabulary.user_defined}
    if len(ids) > MAX_ADDED_TOKENS:
        raise InvalidFile(
            f"{metadata.path}: {len(ids)} tokens stand for themselves, as control tokens do; at "
            f"most {MAX_ADDED_TOKENS} are read"
        )
    swallowing = set()
    if re.search("phi-?3", metadata.text("general.name", "").lower()):
        swallowing = {ids[text] for text in ids.keys() - {"<unk>", "<s>", "<|endoftext|>"}}
    return Parts(
        encoder,
        Specials.of(ids, vocabulary.controls, swallowing),
        len(vocabulary),
        first,
        eos,
        (first,) if adds[0] and first is not None else (),
        (last,) if adds[1] and last is not None else (),
        vocabulary.end_tokens | ({eos} if eos is not None else set()),
        _template(metadata, vocabulary.texts, first, eos),
        drops_first_space,
    )


def _template(
    metadata: Metadata, texts: Texts, bos: int | None, eos: int | None
) -> ChatTemplate | None:
    key = "tokenizer.chat_template"
    if key not in metadata:
        return None
    return ChatTemplate(
        metadata.text(key),
        metadata.path,
        bos_token="" if bos is None else texts[bos],
        eos_token="" if eos is None else texts[eos],
    )

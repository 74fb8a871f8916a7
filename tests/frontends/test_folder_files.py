"""Files of folders: regular ones that lie in the folder are opened, nothing else is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models

from arenite.errors import FileMissing, InvalidFile
from arenite.frontends.folder_files import map_inside, read_inside
from arenite.frontends.gguf import GgufFile
from arenite.frontends.language import LanguageFile
from arenite.generate.tokenizer import Tokenizer
from tests.frontends import gguf_files
from tests.frontends.language_files import write_folder

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00001.safetensors"
MODEL_FILES = ["config.json", "model.safetensors", INDEX, SHARD]
TOKENIZER_FILES = (
    "tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json "
    "chat_template.jinja"
).split()


def open_all(folder: Path) -> None:
    LanguageFile.open(folder)
    Tokenizer.of_folder(folder)


def write_model(folder: Path) -> Path:
    """A folder with all of these files, in one safetensors file; shards on top."""
    write_folder(folder)
    library = LibraryTokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    library.save(str(folder / "tokenizer.json"))
    for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        (folder / name).write_text("{}")
    (folder / "chat_template.jinja").write_text("x")
    return folder


def with_shard(folder: Path) -> Path:
    names = LanguageFile.open(folder).tensors.values()
    places = ", ".join(f'"{tensor.name}": "{SHARD}"' for tensor in names)
    (folder / INDEX).write_text(f'{{"weight_map": {{{places}}}}}')
    os.rename(folder / "model.safetensors", folder / SHARD)
    return folder


def model_for(folder: Path, name: str) -> Path:
    write_model(folder)
    return with_shard(folder) if name in (INDEX, SHARD) else folder


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_link_outside(path: Path) -> None:
    outside = path.parent.parent / "outside"
    outside.mkdir()
    shutil.move(path, outside / path.name)
    path.symlink_to(outside / path.name)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (as_pipe, "is no regular file: a pipe"),
    "a device": (as_device, "is a link to '/dev/zero', outside of the folder"),
    "a link outside": (as_link_outside, "is a link to .*, outside of the folder"),
    "a folder": (as_folder, "is no regular file: a folder"),
    "a link to nothing": (as_link_to_nothing, "can't be read: No such file"),
}


@pytest.mark.parametrize("name", MODEL_FILES + TOKENIZER_FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_of_the_folder_are_opened(kind: str, name: str, tmp_path: Path) -> None:
    folder = model_for(tmp_path / "model", name)
    make, reason = KINDS[kind]
    make(folder / name)
    with pytest.raises(InvalidFile, match=reason) as caught:
        open_all(folder)
    assert name in str(caught.value)


def test_pooling_behind_a_linked_folder_is_outside(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", "bert", config={"hidden_act": "gelu"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text("{}")
    (folder / "1_Pooling").symlink_to(elsewhere)
    with pytest.raises(InvalidFile, match=r"1_Pooling/config\.json is a link to .*, outside"):
        LanguageFile.open(folder)


@pytest.mark.parametrize("name", MODEL_FILES + TOKENIZER_FILES)
def test_links_that_stay_in_the_folder_are_followed(name: str, tmp_path: Path) -> None:
    folder = model_for(tmp_path / "model", name)
    (folder / "parts").mkdir()
    shutil.move(folder / name, folder / "parts" / "file")
    (folder / name).symlink_to("parts/file")
    (tmp_path / "other").symlink_to(folder)
    open_all(folder)
    open_all(tmp_path / "other")  # a folder that is a link is what was asked for


def in_hub_cache(tmp_path: Path, digest: str = "0123456789abcdef" * 4) -> Path:
    """The snapshot of a hub's cache, whose files are links to blobs."""
    snapshot = tmp_path / "models--sand--stone" / "snapshots" / ("ab" * 20)
    blobs = tmp_path / "models--sand--stone" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_model(snapshot)
    for number, path in enumerate(sorted(snapshot.iterdir())):
        blob = digest[:-2] + f"{number:02x}"
        shutil.move(path, blobs / blob)
        path.symlink_to(f"../../blobs/{blob}")
    return snapshot


def test_a_snapshot_of_a_hubs_cache_is_read(tmp_path: Path) -> None:
    snapshot = in_hub_cache(tmp_path)
    open_all(snapshot)
    LanguageFile.open(snapshot / "model.safetensors")


def test_what_is_no_blob_of_the_same_cache_is_outside(tmp_path: Path) -> None:
    snapshot = in_hub_cache(tmp_path)
    blob = (snapshot / "config.json").resolve()
    other = tmp_path / "models--other--one" / "blobs"
    other.mkdir(parents=True)
    for place in (other / blob.name, blob.with_name("passwords"), blob.parent.parent / blob.name):
        shutil.copy(blob, place)
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to(place)
        with pytest.raises(InvalidFile, match="outside of the folder"):
            LanguageFile.open(snapshot)


def test_a_shard_of_a_gguf_file_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    gguf_files.write_model(folder / "model.gguf", shards_of=6)
    first, second, _ = sorted(folder.iterdir())
    assert len(GgufFile.open(first).parts) == 3
    as_link_outside(second)
    with pytest.raises(InvalidFile, match="outside of the folder"):
        GgufFile.open(first)
    second.unlink()
    os.mkfifo(second)
    with pytest.raises(InvalidFile, match="a pipe"):
        GgufFile.open(first)


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_inside(str(tmp_path), "a", 5) == b"12345"
    with pytest.raises(InvalidFile, match="is longer than 4 bytes"):
        read_inside(str(tmp_path), "a", 4)
    assert read_inside(str(tmp_path), "b", 4) is None


@pytest.mark.parametrize("name", ["x" * 10_000, "a\0b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileMissing, match="can't be read") as read:
        read_inside(str(tmp_path), name, 4)
    with pytest.raises(FileMissing, match="can't be read") as mapped:
        map_inside(str(tmp_path), name)
    assert max(len(str(caught.value)) for caught in (read, mapped)) < 400

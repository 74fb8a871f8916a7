"""Vocabularies as GGUF files: keys by name, written by the gguf package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf

from arenite.frontends.gguf import GgufFile, Metadata

REFERENCE = Path(__file__).parent / "tokens_reference.json"


def write_vocabulary(path: Path, keys: dict[str, Any]) -> Path:
    """A file without tensors; values get the kind they have, keys a prefix unless general."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        name = key if key.startswith("general.") else f"tokenizer.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def metadata_of(path: Path, keys: dict[str, Any]) -> Metadata:
    return GgufFile.open(write_vocabulary(path, keys)).metadata


def reference() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(REFERENCE.read_text())
    return found

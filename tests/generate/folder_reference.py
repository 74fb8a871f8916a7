"""What folders are judged on, and where what `judge_folder` found is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tests.generate.folder_models import N_TOKENS

REFERENCE = Path(__file__).parent / "folder_reference.npz"
#: Models are judged after so many tokens.
PREFIXES = (1, 7, 33, 96)
TOKENS: list[int] = np.random.default_rng(7).integers(3, N_TOKENS, max(PREFIXES)).tolist()


def digest(folder: Path) -> str:
    """SHA-256 of config and weights."""
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

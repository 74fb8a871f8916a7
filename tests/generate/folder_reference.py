"""What folders are judged on, and where what `judge_folder` found is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tests.generate.folder_models import N_TOKENS

REFERENCE = Path(__file__).parent / "folder_reference.npz"
CONFIGS = Path(__file__).parent / "folder_configs.json"
#: Models are judged after so many tokens.
PREFIXES = (1, 7, 33, 96)
TOKENS: list[int] = np.random.default_rng(7).integers(3, N_TOKENS, max(PREFIXES)).tolist()
#: What all-minilm is judged on: of the first three the first two mean nearly the same.
SENTENCES = (
    "Arenite is a rock that is made of grains of sand.",
    "Sandstone consists of sand-sized grains.",
    "The committee will meet again on Thursday at half past nine!",
    "Größe, naïve café — 東京 2024: ½ of the \U0001f3d6 is sand",
    "",
)


def digest(folder: Path) -> str:
    """SHA-256 of config and weights."""
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

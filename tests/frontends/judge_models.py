"""Real models, as we read them and as the packages made for their formats do.

    arenite pull smollm2-135m-instruct && arenite pull all-minilm
    python -m tests.frontends.judge_models ~/.cache/arenite/models

Downloads of 120 MB are no part of the tests; this prints what it compared, or fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open

from arenite.frontends.gguf import GgufFile
from arenite.frontends.safetensors import SafetensorsFile
from tests.frontends.test_gguf import assert_tensors_agree, plain


def judge_gguf(path: Path) -> None:
    file, judge = GgufFile.open(path), gguf.GGUFReader(path)
    for key in file.metadata:
        assert plain(file.metadata[key]) == judge.fields[key].contents(), key
    assert_tensors_agree(file, judge)
    print(f"{path.name}: {len(file.metadata)} keys and {len(file.tensors)} tensors agree")


def judge_safetensors(path: Path) -> None:
    file = SafetensorsFile.open(path)
    with safe_open(path, "numpy") as judge:
        names = list(judge.keys())
        assert sorted(file.tensors) == sorted(names)
        for name in names:
            read = file.tensors[name].buffer().as_array()
            np.testing.assert_array_equal(read, judge.get_tensor(name))
    print(f"{path.name}: {len(names)} tensors agree")


def main(folder: Path) -> None:
    files = sorted(folder.rglob("*.gguf")), sorted(folder.rglob("*.safetensors"))
    if not all(files):
        sys.exit(f"{folder} has no GGUF or no safetensors model; run arenite pull for each first")
    for path in files[0]:
        judge_gguf(path)
    for path in files[1]:
        judge_safetensors(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

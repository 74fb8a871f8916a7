"""The files of `bench.language`: SmolLM2-135M in several types, and models of a billion weights.

    python -m bench.language_models [word ...]      make those with one of these words in their name

SmolLM2 is fetched as Q4_1 and requantised by llama.cpp; the others have the shape of Llama 3.2 1B,
a vocabulary of 32,768 and random blocks, of one type throughout. All lie in Arenite's cache.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from arenite.fetch import obtain
from arenite.program.cache import default_folder
from tests.generate.gguf_models import Shape, quantised_weights, random_blocks, write_model

SMOLLM2 = "smollm2"
LARGE = "1b"
#: By their names in llama.cpp's enumeration of file types.
REQUANTISED = {"Q4_0": "Q4_0", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K_M"}
FILES = (
    *(f"{SMOLLM2} {kind}" for kind in ("Q4_1", *REQUANTISED)),
    *(f"{LARGE} {kind}" for kind in ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16")),
)
LARGE_SHAPE = Shape(
    width=2048,
    n_layers=16,
    n_heads=32,
    n_kv_heads=8,
    head_size=64,
    ffn=8192,
    n_tokens=32_768,
    context=8192,
    tied=True,
    rope_base=500_000.0,
)


def path_of(file: str) -> Path:
    """The file of that name, made where it is not there yet."""
    family, kind = file.split()
    if file == f"{SMOLLM2} Q4_1":
        return obtain("smollm2-135m-instruct")
    folder = default_folder() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{family}-{kind}.gguf"
    if not path.exists():
        partial = path.with_suffix(".partial")
        if family == SMOLLM2:
            _requantise(obtain("smollm2-135m-instruct"), partial, REQUANTISED[kind])
        else:
            shape = Shape(**{**LARGE_SHAPE.__dict__, "weights": (kind,)})
            write_model(partial, shape, _quick_weights)
        partial.rename(path)
    return path


def weight_nbytes(file: str) -> int:
    """Bytes of weights that one token needs: all, less embeddings that are only looked up."""
    tensors = {
        tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(path_of(file)).tensors
    }
    unread = tensors["token_embd.weight"] if "output.weight" in tensors else 0
    return sum(tensors.values()) - unread


def prompt(file: str, n_tokens: int) -> list[int]:
    """Ordinary tokens, the same on each call."""
    least = 1000 if file.startswith(SMOLLM2) else 300
    return [int(t) for t in np.random.default_rng(1).integers(least, 30_000, n_tokens)]


def _requantise(source: Path, target: Path, kind: str) -> None:
    import llama_cpp

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.allow_requantize = True
    parameters.nthread = 1
    failed = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(parameters)
    )
    if failed:
        raise RuntimeError(f"llama.cpp does not requantise {source} as {kind}: it returns {failed}")


def _quick_weights(
    rng: np.random.Generator,
    sizes: tuple[int, ...],
    kind: gguf.GGMLQuantizationType,
    deviation: float,
) -> NDArray[np.generic]:
    plain = kind is gguf.GGMLQuantizationType.F16
    return (quantised_weights if plain else random_blocks)(rng, sizes, kind, deviation)


def main(words: list[str]) -> None:
    for file in FILES:
        if not words or any(word in file for word in words):
            print(
                f"{file}: {path_of(file)}, {weight_nbytes(file) / 1e6:.0f} MB a token", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])

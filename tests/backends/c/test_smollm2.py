"""SmolLM2 exported as C, from tokens to logits, follows the compiled one.

Both quantise activations to 8 bits, and sum in another order. A sum that is rounded otherwise may
become another number of 8 bits, and 30 layers make more of that: the compiled model is as far from
the reference, which sums in float64, as from the exported one. `BOUND` is the greatest difference
of a logit, given the same tokens; where greedy texts part, the two best logits of the compiled
model lie within twice of it.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import arenite
from tests.backends.c.executables import COMPILERS, STRICT, needs_compiler

pytestmark = needs_compiler

#: The logits of a token have a standard deviation of about 4.
BOUND = 2.0
MEAN_BOUND = 0.4
N_WRITTEN = 8


def test_exported_it_follows_the_compiled_one(smollm2: Path, tmp_path: Path) -> None:
    made = arenite.export(smollm2, tmp_path, name="smol", context=32)
    assert {file.path.name for file in made.files} == {"smol.c", "smol.h", "smol.weights", "main.c"}
    flags = [*STRICT, "-O2", "-march=native", "-fPIC"]
    for rest in (
        ["-c", "smol.c"],
        ["smol.o", "main.c", "-o", "smol", "-lm"],
        ["-shared", "smol.o", "-o", "smol.so", "-lm"],
    ):
        subprocess.run([COMPILERS[0], *flags, *rest], cwd=tmp_path, check=True)
    with arenite.load(smollm2, context=32) as model:
        prompt = model.tokenizer.encode("The capital of France is")
        command = ["./smol", str(N_WRITTEN), *map(str, prompt)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        written = [int(token) for token in ran.stdout.split()]
        assert len(written) == N_WRITTEN
        tokens = [*prompt, *written]
        session = model.session()
        compiled = [
            model.advance(session, tokens[:k], tokens[k : k + 1]) for k in range(len(tokens))
        ]
    exported = logits_of(tmp_path, tokens, len(compiled[0]))
    differences = np.abs(np.array(compiled) - np.array(exported))
    assert differences.max() < BOUND
    assert differences.mean() < MEAN_BOUND
    for k, token in enumerate(written):
        best = compiled[len(prompt) + k - 1]
        if int(np.argmax(best)) != token:
            first, second = np.sort(best)[-2:][::-1]
            assert first - second < 2 * BOUND
            break


def logits_of(folder: Path, tokens: list[int], count: int) -> list[NDArray[np.float32]]:
    """Those after each token, by the shared object of a folder."""
    library = ctypes.CDLL(str(folder / "smol.so"))
    raw = np.fromfile(folder / "smol.weights", np.uint8)
    room = np.empty(raw.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + raw.nbytes] = raw
    assert library.smol_init(ctypes.c_void_p(room.ctypes.data + start)) == 0
    found = []
    for position, token in enumerate(tokens):
        given = np.array([token, position])
        logits = np.empty(count, np.float32)
        first = given.ctypes.data
        pointers = (ctypes.c_void_p(at) for at in (first, first + 8, logits.ctypes.data))
        assert library.smol_run(*pointers, ctypes.c_int64(1)) == 0
        found.append(logits)
    return found

"""Exported programs on an emulated Cortex-M4 without an operating system: no allocation, no files,
one static arena; results come back as words through the debugger."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from tests.generate.gguf_models import Shape, write_model

BOARD = Path(__file__).parent / "board"
TOOLS = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
}
MISSING = [packages for tool, packages in TOOLS.items() if not shutil.which(tool)]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no emulated board here: apt-get install {' '.join(MISSING)}"
)

FLAGS = "-std=c11 -Wall -Wextra -Werror -Os -mcpu=cortex-m4 -mthumb -mfloat-abi=hard".split()
FLAGS += ["-mfpu=fpv4-sp-d16", "-nostartfiles", "-ffunction-sections", "-Wl,--gc-sections"]
EMULATOR = (
    "qemu-system-arm -M mps2-an386 -cpu cortex-m4 -display none -monitor none -serial none "
    "-semihosting-config enable=on,target=native"
)
WITH_LIBRARY = ("--specs=nosys.specs",)
WITHOUT_LIBRARY = ("-ffreestanding", "-nostdlib", "-DWITHOUT_LIBRARY")


def run_on_board(folder: Path, main: str, *flags: str) -> NDArray[np.uint32]:
    """The words that a main writes, of a program in a folder."""
    (folder / "main.c").write_text(main)
    files = [str(path) for path in folder.glob("*.c")]
    libraries = ["-lgcc"] if "-nostdlib" in flags else ["-lm"]
    line = ["arm-none-eabi-gcc", *FLAGS, *flags, "-T", str(BOARD / "memory.ld")]
    line += [str(BOARD / "start.c"), *files, *libraries, "-o", "board.elf"]
    made = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    ran = subprocess.run(
        [*EMULATOR.split(), "-kernel", "board.elf"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    said = (ran.stdout + ran.stderr).split()
    assert ran.returncode == 0, (ran.returncode, said[:20])
    return np.array([int(word, 16) for word in said], np.uint32)


def array_of(name: str, array: NDArray[Any], kind: str) -> str:
    numbers = ", ".join(repr(one) for one in array.reshape(-1).tolist())
    return f"static const {kind} {name}[{array.size}] = {{{numbers}}};\n"


def network(x: Tensor) -> Tensor:
    """Two convolutions with pools between, and a softmax: digits of 12 x 12."""
    rng = np.random.default_rng(4)

    def weights(*shape: int) -> NDArray[np.float32]:
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        return np.asarray(deviation * rng.standard_normal(shape), np.float32)

    for channels, before in ((4, 1), (8, 4)):
        x = x.conv(weights(channels, before, 3, 3), padding=1)
        x = arenite.maximum(x + weights(channels, 1, 1), 0)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    scores = x.reshape(1, -1) @ weights(72, 10)
    powers = arenite.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


NETWORK_MAIN = """
#include "net.h"
void write_word(uint32_t word);
static float scores[10];
int main(void) {
    if (net_init() != 0 || net_run(image, scores) != 0) return 1;
    for (int k = 0; k < 10; k++) {
        const union { float number; uint32_t word; } both = {.number = scores[k]};
        write_word(both.word);
    }
    return 0;
}
"""


@pytest.mark.parametrize("freestanding", [False, True], ids=["newlib", "freestanding"])
def test_a_convolutional_network(tmp_path: Path, freestanding: bool) -> None:
    image = np.random.default_rng(2).standard_normal((1, 1, 12, 12)).astype(np.float32)
    with arenite.compile(network, arenite.spec(image.shape)) as compiled:
        wanted = compiled(image)
        made = arenite.export(
            compiled, tmp_path, name="net", weights="array", freestanding=freestanding
        )
    assert made.arena_nbytes < 8192
    flags = WITHOUT_LIBRARY if freestanding else WITH_LIBRARY
    words = run_on_board(tmp_path, array_of("image", image, "float") + NETWORK_MAIN, *flags)
    np.testing.assert_allclose(words.view(np.float32)[None], wanted, rtol=1e-5, atol=1e-7)


LANGUAGE_MAIN = """
#include "lm.h"
void write_word(uint32_t word);
static float logits[LM_LOGITS_BYTES / sizeof(float)];
int main(void) {
    if (lm_init() != 0) return 1;
    int64_t token = 0;
    for (int64_t position = 0; position < 12; position++) {
        if (position < 4) token = prompt[position];
        if (lm_run(&token, &position, logits, 1) != 0) return 1;
        token = 0;
        for (int64_t k = 1; k < (int64_t)(sizeof logits / sizeof logits[0]); k++)
            if (logits[k] > logits[token]) token = k;
        if (position >= 3) write_word((uint32_t)token);
    }
    return 0;
}
"""


def test_a_language_model_of_two_layers(tmp_path: Path) -> None:
    shape = Shape(
        width=64, n_heads=2, n_kv_heads=1, head_size=32, ffn=96, context=16, weights=("F16",)
    )
    path = tmp_path / "tiny.gguf"
    write_model(path, shape)
    prompt = np.array([5, 17, 100, 42])
    expected = []
    with arenite.load(path, context=16) as model:
        session, fed = model.session(), prompt.tolist()
        logits = model.advance(session, [], fed)
        for _ in range(9):
            expected.append(int(np.argmax(logits)))
            logits = model.advance(session, fed, expected[-1:])
            fed.append(expected[-1])
    folder = tmp_path / "c"
    arenite.export(path, folder, name="lm", context=16, weights="array")
    words = run_on_board(folder, array_of("prompt", prompt, "int") + LANGUAGE_MAIN, *WITH_LIBRARY)
    assert words.tolist() == expected

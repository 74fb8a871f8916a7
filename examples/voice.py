"""Who speaks when: voice activity over a stream, piece by piece, with the state carried along.

python examples/voice.py [SOUND.wav]      (16 kHz, one channel; a voice is made up if there is none)
"""

from __future__ import annotations

import sys
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np

import arenite

RATE, PIECE, CONTEXT = 16_000, 512, 64  # samples: a second, a piece of 32 ms, what came before it


def pieces(sound: Any) -> Iterator[Any]:
    """The sound as it would come from a microphone."""
    for start in range(0, len(sound) - PIECE + 1, PIECE):
        yield sound[start : start + PIECE]


def main(path: str = "") -> None:
    sound = read(path) if path else made_up()
    model = arenite.load("silero-vad", kind="onnx")
    print(model.inputs, end="\n\n")
    with model.compile(threads=1, memory="16MiB") as program:
        state = np.zeros((2, 1, 128), np.float32)
        context = np.zeros(CONTEXT, np.float32)
        chances = []
        for piece in pieces(sound):
            heard = np.concatenate([context, piece])[None]
            found = program({"input": heard, "state": state, "sr": np.array(RATE)})
            state, context = found["stateN"], piece[-CONTEXT:]
            chances.append(float(found["output"][0, 0]))
        print("".join(" .:-=+*#%@"[int(chance * 9.99)] for chance in chances))
        print("|" + "-" * 30 + " each mark is 32 ms; a dark one is a voice\n")
        speaking = [k for k, chance in enumerate(chances) if chance > 0.5]
        if speaking:
            first, last = speaking[0] * PIECE / RATE, (speaking[-1] + 1) * PIECE / RATE
            print(f"a voice from {first:.2f} s to {last:.2f} s of {len(sound) / RATE:.2f} s")
        print(f"{program.variants.n_compiled} program, {program.plan.total_nbytes / 2**20:.1f} MiB")


def read(path: str) -> Any:
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def made_up() -> Any:
    """A second of noise, one of vowels, one of noise: pulses of a throat through three formants."""
    rng = np.random.default_rng(0)
    t = np.arange(RATE) / RATE
    pitch = 120 + 15 * np.sin(2 * np.pi * 3 * t)
    voice = np.zeros(RATE)
    for k in range(1, 30):
        for vowel, formants in enumerate(((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410))):
            loudness = sum(1 / (1 + ((k * pitch - f) / 80) ** 2) for f in formants)
            here = np.clip(1 - np.abs(t * 6 % 3 - vowel - 0.5), 0, 1)
            voice += here * loudness / np.sqrt(k) * np.sin(2 * np.pi * k * np.cumsum(pitch) / RATE)
    voice *= 0.3 / np.abs(voice).max() * np.sin(np.pi * t * 3) ** 2
    silence = np.zeros(RATE)
    sound = np.concatenate([silence, voice, silence]) + rng.standard_normal(3 * RATE) * 0.002
    return sound.astype(np.float32)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Which notes are played? A recording becomes a score: long signals through a small network.

python examples/notes.py [SOUND.wav]       (22,050 Hz, one channel; a tune is made if there is none)
"""

from __future__ import annotations

import sys
import wave
from typing import Any

import numpy as np

import arenite

RATE, SAMPLES = 22_050, 43_844  # of a second, of what the model hears at once: about two seconds
NAMES = "C C# D D# E F F# G G# A A# B".split()
LOWEST, LEAST = 21, 0.5  # the piano's lowest key, and how sure the model must be


def main(path: str = "") -> None:
    sound = read(path) if path else played()
    n_parts = -(-len(sound) // SAMPLES)
    parts = np.resize(np.pad(sound, (0, n_parts * SAMPLES - len(sound))), (n_parts, SAMPLES, 1))
    model = arenite.load("basic-pitch", kind="onnx")
    print(f"{len(model.plan().slots)} values in {model.plan().total_nbytes / 2**20:.1f} MiB\n")
    with model.compile(threads=2) as program:
        found = program(parts.astype(np.float32))  # all parts at once
    frames = np.concatenate([*found["StatefulPartitionedCall:1"]])  # how sure, by time and key
    step = n_parts * SAMPLES / RATE / len(frames)
    print("note   from    to (s)")
    for start, end, key in sorted(held(frames > LEAST)):
        name = f"{NAMES[(key + LOWEST) % 12]}{(key + LOWEST) // 12 - 1}"
        print(f"{name:<5} {start * step:5.2f} {end * step:6.2f}")


def held(pressed: Any) -> list[tuple[int, int, int]]:
    """(first frame, last frame, key) of keys that stay down for a while."""
    found = []
    for key in range(pressed.shape[1]):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], pressed[:, key], [0]]).astype(int)))
        found += [(int(a), int(b), key) for a, b in edges.reshape(-1, 2) if b - a > 8]
    return found


def read(path: str) -> Any:
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def played() -> Any:
    """Four notes, each with its overtones, half a second long."""
    t = np.arange(RATE // 2) / RATE
    tune = []
    for key in (60, 64, 67, 72):  # C4 E4 G4 C5
        pitch = 440 * 2 ** ((key - 69) / 12)
        tones = sum(np.sin(2 * np.pi * pitch * k * t) / k**2 for k in range(1, 6))
        tune.append(0.4 * tones * np.exp(-2 * t) * np.minimum(1, t * 100))
    return np.concatenate(tune)


if __name__ == "__main__":
    main(*sys.argv[1:])

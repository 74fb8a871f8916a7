"""Writes `recurrent_reference.npz`: what PyTorch's LSTM and GRU make of random weights and inputs.

    python tests/tensor/judge_recurrent.py

Made with PyTorch 2.13.0 on the CPU. Arrays are called `case/x`, `case/w`, ... and `case/y`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

#: kind, time, batch, inputs, hidden
CASES = {
    "lstm": ("LSTM", 7, 3, 5, 4),
    "lstm_one_step": ("LSTM", 1, 1, 8, 16),
    "lstm_wide": ("LSTM", 12, 2, 33, 40),
    "gru": ("GRU", 7, 3, 5, 4),
    "gru_one_step": ("GRU", 1, 1, 8, 16),
    "gru_wide": ("GRU", 12, 2, 33, 40),
}


def main() -> None:
    arrays: dict[str, Any] = {}
    torch.manual_seed(11)
    for name, (kind, time, batch, inputs, hidden) in CASES.items():
        layer = getattr(torch.nn, kind)(inputs, hidden)
        x = torch.randn(time, batch, inputs)
        h, c = torch.randn(1, batch, hidden), torch.randn(1, batch, hidden)
        with torch.no_grad():
            y, last = layer(x, (h, c) if kind == "LSTM" else h)
        parts = {
            "x": x,
            "w": layer.weight_ih_l0,
            "r": layer.weight_hh_l0,
            "bw": layer.bias_ih_l0,
            "br": layer.bias_hh_l0,
            "h": h[0],
            "c": c[0],
            "y": y,
            "last_h": (last[0] if kind == "LSTM" else last)[0],
            "last_c": (last[1] if kind == "LSTM" else last)[0],
        }
        arrays |= {f"{name}/{part}": value.detach().numpy() for part, value in parts.items()}
    np.savez_compressed(Path(__file__).with_name("recurrent_reference.npz"), **arrays)


if __name__ == "__main__":
    main()

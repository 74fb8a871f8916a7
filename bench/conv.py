"""Convolutions in float32 on the CPU against the better of PyTorch and ONNX Runtime.

    python -m bench.conv [--threads N] [word ...]        only layers with one of these words

Needs torch and onnxruntime beside Arenite. Prints the median ratio (their time over ours) with its
quartiles, and the share of the multiply-add peak of as many cores, measured beside each layer; at
the end the geometric mean of the ratios and the least of them.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

from bench.conv_cases import LAYERS
from bench.gemm_ours import peak_operations
from bench.harness import Side, compare_best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    layers = [
        layer
        for name, layer in LAYERS.items()
        if not given.words or any(word in name for word in given.words)
    ]
    ours = Side("bench.conv_ours")
    peers = {"PyTorch": Side("bench.conv_torch"), "ONNX Runtime": Side("bench.conv_onnx")}
    print("| layer | ours µs | theirs µs | ratio | quartiles | peer | of the peak |")
    print("|---|---:|---:|---:|---|---|---:|")
    ratios: dict[str, float] = {}
    try:
        for layer in layers:
            peer, result = compare_best(ours, peers, layer.name, given.threads)
            ratios[layer.name] = result.ratio
            ours.ask(prepare="peak", threads=1)
            limit = peak_operations() / min(ours.ask()["seconds"] for _ in range(3))
            share = layer.operations / result.ours_seconds / (given.threads * limit)
            print(
                f"| {layer.name} | {result.ours_seconds * 1e6:.1f} "
                f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
                f"| {result.low:.2f} to {result.high:.2f} | {peer} | {share:.0%} |",
                flush=True,
            )
    finally:
        for side in (ours, *peers.values()):
            side.close()
    least = min(ratios, key=lambda name: ratios[name])
    mean = geometric_mean(ratios.values())
    print(f"\ngeometric mean {mean:.3f}, least {ratios[least]:.2f}: {least}")


if __name__ == "__main__":
    main()

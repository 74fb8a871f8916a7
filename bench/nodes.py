"""Convolutions inside whole models, node by node, against ONNX Runtime and OpenVINO.

    python -m bench.nodes [--threads N] [--rounds N] model ...        see bench.models for names

Needs onnx, onnxruntime and openvino beside Arenite. Each side is a process of its own and they take
turns. Every figure is a median over rounds; a ratio is the time of the better peer over ours.

For each convolution: the kernel that has it, with all that is fused into it, against the peer's
node, with what that one has; in brackets, with what follows it in nodes of its own. Then, for the
model, all that is no convolution, and the run as a whole without a profile.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean, median

import onnx

from bench import gemm_ours, int8_ours
from bench.harness import Side
from bench.models import MODELS
from bench.nodes_names import CONVOLUTIONS, name_of
from bench.nodes_side import NodeSide, Times

#: Seconds from which on a convolution counts for the speed of a model, on any side.
MUCH = 20e-6

OURS, PEERS = "ours", ("ONNX Runtime", "OpenVINO")
_MODULES = {
    OURS: "bench.nodes_ours",
    "ONNX Runtime": "bench.nodes_onnx",
    "OpenVINO": "bench.nodes_openvino",
}


def layers(model: onnx.ModelProto) -> dict[str, tuple[str, int]]:
    """Convolutions by name: what they are, and their operations."""
    inferred = onnx.shape_inference.infer_shapes(model)
    shapes = {
        one.name: [size.dim_value for size in one.type.tensor_type.shape.dim]
        for one in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    }
    shapes |= {one.name: list(one.dims) for one in inferred.graph.initializer}
    for node in inferred.graph.node:
        if node.op_type == "Constant":
            shapes[node.output[0]] = list(node.attribute[0].t.dims)
    found = {}
    for node in inferred.graph.node:
        if node.op_type not in CONVOLUTIONS:
            continue
        attrs = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        x, w, y = (shapes[name] for name in (*node.input[:2], node.output[0]))
        taps, stride = f"{w[2]}x{w[3]}", attrs["strides"][0]
        n_places = y[2] * y[3] if node.op_type == "Conv" else x[2] * x[3]
        by = f"/{stride}" if stride > 1 else ""
        kind = "depthwise " if attrs["group"] > 1 else ""
        kind = "transposed " if node.op_type == "ConvTranspose" else kind
        text = f"{kind}{taps}{by} {x[1]}->{y[1]} @{x[2]}"
        weights = w[0] * w[1] * w[2] * w[3]
        found[name_of(node)] = (text, 2 * weights * n_places)
    return found


def measured(sides: dict[str, NodeSide], rounds: int) -> dict[str, Times]:
    """Medians over rounds, by side."""
    turns: dict[str, list[Times]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            turns[name].append(side.ask())
    return {
        name: {key: median(one.get(key, 0.0) for one in found) for key in found[0]}
        for name, found in turns.items()
    }


def report(model: str, times: dict[str, Times], threads: int, peak: float) -> None:
    ours = times[OURS]
    print(f"\n{model}, {threads} threads\n")
    print("| layer | ours µs | ONNX Runtime µs | OpenVINO µs | ratio | of the peak |")
    print("|---|---:|---:|---:|---:|---:|")
    ratios: dict[str, float] = {}
    whole: dict[str, float] = {}
    much: list[str] = []
    for name, (text, operations) in layers(MODELS[model]()).items():
        title = f"{name}: {text}"
        mine = ours[f"conv {name}"]
        alone = {peer: times[peer][f"conv {name}"] for peer in PEERS}
        more = {side: found.get(f"after {name}", 0.0) for side, found in times.items()}
        ratios[title] = min(alone.values()) / mine
        whole[title] = min(alone[peer] + more[peer] for peer in PEERS) / (mine + more[OURS])
        if max(mine, *alone.values()) >= MUCH:
            much.append(title)
        peers = " | ".join(_micros(alone[peer], more[peer]) for peer in PEERS)
        share = operations / mine / (threads * peak)
        print(
            f"| {text} | {_micros(mine, more[OURS])} | {peers} "
            f"| {ratios[title]:.2f} | {share:.0%} |"
        )
    print()
    for title, found in (
        ("all convolutions", ratios),
        (f"of {MUCH * 1e6:.0f} µs or more", {name: ratios[name] for name in much}),
        ("these, with what follows them", {name: whole[name] for name in much}),
    ):
        least = min(found, key=lambda name: found[name])
        mean = geometric_mean(found.values())
        print(f"{title}: geometric mean {mean:.3f}, least {found[least]:.2f}: {least}")
    print()
    print("| ms | ours | ONNX Runtime | OpenVINO | ratio |\n|---|---:|---:|---:|---:|")
    for text, words in {
        "convolutions": ("conv",),
        "conversions of layout": ("layout",),
        "convolutions and conversions": ("conv", "layout"),
        "what follows convolutions": ("after",),
        "all else": ("rest",),
        "the run": ("run",),
    }.items():
        numbers = {
            side: sum(one for key, one in found.items() if key.split(" ")[0] in words)
            for side, found in times.items()
        }
        theirs = min(numbers[peer] for peer in PEERS)
        ratio = f"{theirs / numbers[OURS]:.2f}" if numbers[OURS] else ""
        cells = " | ".join(f"{numbers[side] * 1e3:.2f}" for side in (OURS, *PEERS))
        print(f"| {text} | {cells} | {ratio} |", flush=True)


def _micros(alone: float, more: float) -> str:
    return f"{alone * 1e6:.1f}" + (f" ({(alone + more) * 1e6:.1f})" if more else "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("models", nargs="+", choices=list(MODELS))
    given = parser.parse_args()
    limits = {module: Side(module.__name__) for module in (gemm_ours, int8_ours)}
    sides = {name: NodeSide(module) for name, module in _MODULES.items()}
    try:
        for limit in limits.values():
            limit.ask(prepare="peak", threads=1)
        for model in given.models:
            for side in sides.values():
                side.ask(prepare=model, threads=given.threads)
            times = measured(sides, given.rounds)
            module = int8_ours if model.endswith(("_u8", "_s8")) else gemm_ours
            seconds = min(limits[module].ask()["seconds"] for _ in range(10))
            peak = module.peak_operations() / seconds
            report(model, times, given.threads, peak)
    finally:
        for process in (*limits.values(), *sides.values()):
            process.close()


if __name__ == "__main__":
    main()

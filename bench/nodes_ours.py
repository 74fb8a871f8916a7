"""Our side of `bench.nodes`. A kernel belongs to the convolution whose name its origins have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping

from arenite.dtype import of as dtype_of
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, translate
from arenite.pipeline import compile_graph
from arenite.program.cached_kernel import CachedKernel
from arenite.runtime.profile import Profile
from bench.models import MODELS, image
from bench.nodes_names import CONVOLUTIONS, name_of
from bench.nodes_side import RUNS, Times, timed

#: What kernels begin with that have work of their own, wherever their values come from.
_REST = frozenset({"max", "sum", "concat", "matmul"})
_CONVOLUTIONS = ("conv", "depthwise")


def prepare(model: str, threads: int) -> Callable[[], list[Times]]:
    given = MODELS[model]()
    x = image(given)
    file = OnnxFile.of_bytes(given.SerializeToString(), model)
    [name] = file.inputs
    graph = translate(file, {name: Argument(x.shape, dtype_of(x.dtype))}).graph
    program = compile_graph(graph, threads=threads)
    convolutions = [name_of(node) for node in given.graph.node if node.op_type in CONVOLUTIONS]
    keys = {kernel.entry_point: key_of(kernel, convolutions) for kernel in program.kernels}
    # A convolution alone, with nothing fused into it, has no origin: they come in order.
    named = set(keys.values())
    left = iter(name for name in convolutions if f"conv {name}" not in named)
    for name, key in keys.items():
        if key == "rest" and name.split("_")[0] in _CONVOLUTIONS:
            keys[name] = f"conv {next(left)}"

    def work() -> list[Times]:
        for _ in range(2):
            program(x)
        return [_summed(program.profile(x), keys) | timed(lambda: program(x)) for _ in range(RUNS)]

    return work


def key_of(kernel: CachedKernel, convolutions: Collection[str]) -> str:
    """What the time of a kernel counts as."""
    names = [origin.name for origin in kernel.origins if origin.name in convolutions]
    first = kernel.entry_point.split("_")[0]
    if first in _CONVOLUTIONS and names:
        return f"conv {names[0]}"
    if first == "permute":
        return "layout"
    return f"after {names[0]}" if names and first not in _REST else "rest"


def _summed(profile: Profile, keys: Mapping[str, str]) -> Times:
    times: defaultdict[str, float] = defaultdict(float)
    for name, seconds in elapsed(profile).items():
        times[keys[name]] += seconds
    return times


def elapsed(profile: Profile) -> Times:
    """Wall time by kernel: each moment is shared by the calls that are under way in it."""
    records = profile.records
    moments = [(int(one["begin"]), 1, int(one["kernel"])) for one in records]
    moments += [(int(one["end"]), -1, int(one["kernel"])) for one in records]
    clocks: defaultdict[int, float] = defaultdict(float)
    under_way: Counter[int] = Counter()
    before = 0
    for at, step, kernel in sorted(moments):
        n_calls = sum(under_way.values())
        for other, count in under_way.items():
            clocks[other] += (at - before) * count / max(n_calls, 1)
        under_way[kernel] += step
        before = at
    by_name: defaultdict[str, float] = defaultdict(float)
    for kernel, number in clocks.items():
        by_name[profile.names[kernel]] += number / profile.clocks_per_second
    return by_name

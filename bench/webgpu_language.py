"""Language models on a GPU: whether they are right, and what a token takes.

    python -m bench.webgpu_language [--seconds 170] [--context 1024] [word ...]

First a small model of each type of weights beside the CPU. Then models of the shapes of Llama 3.2
1B and SmolLM2-135M, with random weights, made on the spot in a folder that is removed again; those
with one of the words in their name. For each: tokens a second at such a context, wall clock,
chosen by the device and by the host, and the host's part of that; a prompt of 512 in TFLOP/s;
dispatches and barriers a token; the bytes of products over their time by the device's clock, each
in a pass of its own and each kind in one, and a token's; how long a new process takes to its first
token, with everything in caches. No case begins after so many seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

import arenite
from arenite import device
from arenite.backends.webgpu.dispatch import Dispatch
from arenite.backends.webgpu.load import WebGpuProgram
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import AreniteError
from arenite.generate.model import LanguageModel
from arenite.generate.sampler import Sampler
from arenite.generate.sampling import Sampling
from arenite.ir.dim import evaluate
from bench.language_models import LARGE_SHAPE
from bench.webgpu_kernels import Timer
from tests.generate.gguf_models import Shape, quantised_weights, random_blocks, write_model

SMALL = Shape(width=256, n_heads=4, n_kv_heads=2, head_size=64, ffn=512, n_layers=2)
SMOLLM2 = Shape(
    width=576,
    n_layers=30,
    n_heads=9,
    n_kv_heads=3,
    head_size=64,
    ffn=1536,
    n_tokens=49_152,
    context=8192,
    tied=True,
    rope_base=100_000.0,
)
SHAPES = {"1b": LARGE_SHAPE, "smollm2": SMOLLM2}
CASES = (
    *("1b F16", "smollm2 Q4_1", "1b Q4_0", "1b Q8_0", "1b Q4_K", "1b Q4_1"),
    *("smollm2 F16", "smollm2 Q8_0", "smollm2 Q4_0"),
)
PROMPT = 512
ROUNDS = 15
#: Tokens a round.
N_DECODED = 32
#: How tokens are chosen: the likeliest, and as most people have it.
CHOICES: dict[str, dict[str, Any]] = {"likeliest": {"temperature": 0.0}, "usual chain": {"seed": 1}}
#: What a GPU works before it is timed: at rest its clocks are a fifth of what they can be.
WARM_SECONDS = 0.5
#: Launches of one kind that are timed together; what one without work takes; and bytes a second of
#: which products are to reach three quarters.
MEASURED = 32
EMPTY_SECONDS, MOST_BYTES = 2.2e-6, 4.3e12
#: Of a logit of the small models: weights in blocks take activations in 8 bits.
BOUNDS = {"F16": 5e-3}
BLOCK_BOUND = 1.0


def quick_weights(
    rng: np.random.Generator, sizes: tuple[int, ...], kind: GGMLQuantizationType, deviation: float
) -> NDArray[Any]:
    """The same matrix wherever one of its shape stands: how fast it is read does not depend on
    what is in it."""
    key = (sizes, kind, round(deviation, 6))
    if key not in _made:
        by_quantiser = (GGMLQuantizationType.F16, GGMLQuantizationType.Q4_1)
        make = quantised_weights if kind in by_quantiser else random_blocks
        _made[key] = make(rng, sizes, kind, deviation)
    return _made[key]


_made: dict[Any, NDArray[Any]] = {}


@contextmanager
def model_file(name: str, shape: Shape, kind: str) -> Iterator[Path]:
    """A file of the shape, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}-{kind}.gguf"
        _made.clear()
        write_model(path, replace(shape, weights=(kind,)), quick_weights)
        yield path


def judged(kind: str) -> str:
    """How far logits of a small model are from the CPU's."""
    tokens = [5, 17, 200, 31, 8, 99, 45, 7, 3]
    with model_file("small", SMALL, kind) as path:
        found = []
        for name in ("cpu", "webgpu"):
            with arenite.load(path, context=64, device=name) as model:
                assert isinstance(model, LanguageModel)
                session = model.session()
                rows = [session.feed(tokens[:6]), *(session.feed([t]) for t in tokens[6:])]
                found.append(np.array(rows))
    worst = float(np.abs(found[0] - found[1]).max())
    bound = BOUNDS.get(kind, BLOCK_BOUND)
    verdict = "right" if worst < bound else f"WRONG, the bound is {bound}"
    return (
        f"  small {kind}: logits differ by {worst:.2g} of {np.abs(found[0]).max():.3g}: {verdict}"
    )


def first_token(path: Path) -> float:
    """Seconds from the start of a process to its first token: the median of three."""
    code = (
        "import sys, arenite\n"
        f"m = arenite.load(sys.argv[1], context=2048, block={PROMPT}, device='webgpu')\n"
        "m.session().feed([1])\n"
        "print('there', flush=True)"
    )
    found = []
    for _ in range(3):
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "there\n"
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def weights_nbytes(path: Path) -> int:
    """Of all matrices that a token is multiplied with."""
    return sum(int(one.n_bytes) for one in gguf.GGUFReader(path).tensors)


def warm(model: LanguageModel, context: int) -> None:
    session = model.session()
    logits = session.feed([7] * context)
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        session.rewind(context)
        logits = session.feed([int(np.argmax(logits))])


def decode_by_host(model: LanguageModel, context: int) -> float:
    """Seconds a token that the host chooses, one run at a time: the median of rounds."""
    session = model.session()
    logits = session.feed([7] * context)
    rounds = []
    for _ in range(ROUNDS):
        session.rewind(context)
        began = time.perf_counter()
        for _ in range(N_DECODED):
            logits = session.feed([int(np.argmax(logits))])
        rounds.append((time.perf_counter() - began) / N_DECODED)
    return statistics.median(rounds)


def decode(model: LanguageModel, options: dict[str, Any], context: int) -> tuple[float, float]:
    """Seconds a token that the device chooses, and of these the host's until the device has a run:
    medians of rounds. What a text takes to begin and to end is in it."""
    hosts: list[float] = []
    start = model.executable.start_decoding

    def timed(*arguments: Any) -> None:
        began = time.perf_counter()
        start(*arguments)
        hosts.append(time.perf_counter() - began)

    vars(model.executable)["start_decoding"] = timed
    session = model.session()
    session.feed([7] * context)
    rounds = []
    for _ in range(ROUNDS):
        session.rewind(context)
        tokens = [7] * (context + 1)
        sampler = Sampler(Sampling(**options))
        n_tokens = model.file.description.n_tokens
        began = time.perf_counter()
        ahead = session.ahead(sampler, n_tokens, tokens, context + 1 + N_DECODED)
        assert ahead is not None
        for _ in range(N_DECODED):
            token = ahead.next(tokens)
            assert token is not None, "the device left a choice to the host"
            tokens.append(token)
        rounds.append((time.perf_counter() - began) / N_DECODED)
    del vars(model.executable)["start_decoding"]
    return statistics.median(rounds), statistics.median(hosts)


def prefill(model: LanguageModel, n_weights: float) -> float:
    """TFLOP/s of a prompt's products."""
    session = model.session()
    found = []
    for _ in range(5):
        session.reset()
        began = time.perf_counter()
        session.feed([7] * PROMPT)
        found.append(time.perf_counter() - began)
        model._slots.forget()
    return 2 * n_weights * PROMPT / statistics.median(found) / 1e12


def products(model: LanguageModel, context: int) -> str:
    """What the device's clock says of one token."""
    arguments = model.settings.arguments([7], context)
    profile = model.executable.profile(*arguments)
    sizes = {"tokens": 1, "keys": context + 1}
    moved = seconds = other = 0.0
    for kernel, one in zip(model.executable.kernels, profile.kernels, strict=True):
        is_product = "matmul" in one.name or "product" in one.name
        if is_product and any("weight" in name for name in one.reads):
            moved += evaluate(kernel.reads_nbytes, sizes)
            seconds += one.seconds
        else:
            other += one.seconds
    lines = [
        f"{profile.about}",
        f"products {moved / 1e6:.0f} MB in {seconds * 1e6:.0f} us: "
        f"{moved / max(seconds, 1e-9) / 1e12:.2f} TB/s; others {other * 1e6:.0f} us; "
        f"from first to last {profile.wall_seconds * 1e6:.0f} us",
    ]
    slowest = sorted(profile.kernels, key=lambda one: -one.seconds)[:6]
    lines += [f"  {one.name}: {one.seconds * 1e6:.1f} us {one.origin[-30:]}" for one in slowest]
    return "\n    ".join(lines)


def launches_of(model: LanguageModel, context: int) -> list[Dispatch]:
    """Those of one token, as they are recorded."""
    program = model.executable._loaded
    assert isinstance(program, WebGpuProgram)
    table = program.bound_table({"tokens": 1, "keys": context + 1})
    table.write()
    first_of = table.rows[:, 0]
    groups = [(int(x), int(y)) for x, y in zip(first_of["x"], first_of["y"], strict=True)]
    firsts = sorted(run.start for run in table._runs)
    return [
        replace(one, groups=groups[first])
        for first, one in zip(firsts, table.dispatches, strict=True)
        if groups[first][0]
    ]


def by_kind(launches: list[Dispatch], timer: Timer, nbytes: int) -> str:
    """What each kind of launch takes, where one of its kind follows another in one pass: each waits
    for the one before. Products have so many bytes of weights."""
    kinds: dict[tuple[str, Any], list[Dispatch]] = {}
    for one in launches:
        name = one.name.split(",")[0].rstrip("0123456789_")
        kinds.setdefault((name, one.groups), []).append(one)
    lines, seconds, count = [], 0.0, 0
    for (name, groups), some in kinds.items():
        times = -(-MEASURED // len(some))
        took = timer.seconds(some * times) / (len(some) * times)
        lines.append(f"  {name}, {groups[0]} groups: {took * 1e6:.1f} us x {len(some)}")
        if "product" in name or "matmul" in name:
            seconds, count = seconds + took * len(some), count + len(some)
    gaps = count * EMPTY_SECONDS
    shares = [100 * nbytes / (seconds - less) / MOST_BYTES for less in (0.0, gaps)]
    lines.append(
        f"{count} products by these {seconds * 1e6:.0f} us: {shares[0]:.0f} % of 4.3 TB/s, "
        f"{shares[1]:.0f} % less {EMPTY_SECONDS * 1e6:.1f} us that a launch without work takes"
    )
    return "\n    ".join(lines)


def measure(case: str, timer: Timer, context: int) -> None:
    name, kind = case.split()
    began = time.perf_counter()
    with model_file(name, SHAPES[name], kind) as path:
        made = time.perf_counter()
        with arenite.load(path, context=2 * context, block=PROMPT, device="webgpu") as model:
            assert isinstance(model, LanguageModel)
            model.session().feed([1])
            loaded = time.perf_counter()
            nbytes = weights_nbytes(path)
            n_weights = sum(float(np.prod(one.shape)) for one in gguf.GGUFReader(path).tensors)
            print(
                f"{case}: {nbytes / 1e6:.0f} MB, made in {made - began:.1f} s, first token after "
                f"{loaded - made:.1f} s",
                flush=True,
            )
            print(f"    {first_token(path):.2f} s in a new process", flush=True)
            warm(model, context)
            for name, options in CHOICES.items():
                token, host = decode(model, options, context)
                print(
                    f"    {1 / token:.0f} tokens/s at {context}, {name} ({token * 1e6:.0f} us; the "
                    f"host records and submits for {host * 1e6:.0f} meanwhile)",
                    flush=True,
                )
            token = decode_by_host(model, context)
            print(f"    {1 / token:.0f} where the host chooses ({token * 1e6:.0f} us)", flush=True)
            print(f"    prompt of {PROMPT}: {prefill(model, n_weights):.2f} TFLOP/s", flush=True)
            launches = launches_of(model, context)
            took = timer.seconds(launches)
            print(f"    a token takes the device {took * 1e6:.0f} us", flush=True)
            print(f"    {by_kind(launches, timer, nbytes)}", flush=True)
            print(f"    {products(model, context)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--small", action="store_true", help="only what is checked")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    began = time.perf_counter()
    gpu = device.get("webgpu")
    assert isinstance(gpu, WebGpuAllocator)
    print(f"{gpu.adapter_name} ({gpu.driver})", flush=True)
    timer = Timer(gpu)
    cases = [
        case
        for case in CASES
        if not given.words or any(word.lower() in case.lower() for word in given.words)
    ]
    for kind in dict.fromkeys(case.split()[1] for case in cases):
        print(judged(kind), flush=True)
    for case in () if given.small else cases:
        if time.perf_counter() - began > given.seconds:
            print(f"{case}: left out, the time is up", flush=True)
            continue
        try:
            measure(case, timer, given.context)
        except AreniteError as problem:
            print(f"{case}: {problem}", flush=True)


if __name__ == "__main__":
    main()

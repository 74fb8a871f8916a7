"""`arenite run`: an ONNX model on inputs, and how long it takes; `arenite profile`: where."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from arenite.cli import language, onnx, output
from arenite.cli.options import Device, ModelName, Threads
from arenite.device.allocator import readable_nbytes

if TYPE_CHECKING:
    from arenite.model import CompiledModel

Inputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="FILE.npy, random:1x3x224x224, or numbers; or FILE.npz, several by name. What is not "
        "given is random.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Of random inputs.")]


def run(
    model: ModelName,
    input: Inputs = None,  # noqa: A002 - the option's name
    output_file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.npz", help="Where outputs are written."),
    ] = None,
    dim: onnx.Dims = None,
    memory: onnx.Memory = None,
    threads: Threads = None,
    device: Device = None,
    repeat: Annotated[int, typer.Option(min=1, help="Run so often; the best time counts.")] = 1,
    seed: Seed = 0,
    offline: onnx.Offline = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Run an ONNX model once, or --repeat times: outputs, times, and memory planned and used.

    arenite run model.onnx --input x=random:1x3x224x224 --output y.npz
    """
    from arenite.cli import arrays

    opened, title = onnx.opened(model, offline=offline, command="run")
    sizes = onnx.sizes_of(opened, dim)
    given = arrays.arrays_of(opened, input, sizes, seed)
    program, compile_seconds = onnx.compiled(
        opened, title, memory=memory, threads=threads, sizes=sizes, device=device
    )
    with program:
        outputs, seconds = _timed(program, given, repeat, title)
        facts = {
            "file": opened.path,
            "device": program.executable.device,
            "runs_on": program.executable.runs_on,
            "on_cpu": program.on_cpu,
            "threads": program.threads,
            "compile_seconds": compile_seconds,
            "first_seconds": seconds[0],
            "best_seconds": min(seconds),
            "planned_nbytes": getattr(program.plan, "total_nbytes", program.plan.peak_nbytes),
            "peak_nbytes": peak_nbytes(),
        }
    if output_file is not None:
        arrays.saved(output_file, outputs)
    rows = [(name, *arrays.described(value)) for name, value in outputs.items()]
    if json:
        fields = ("name", "type", "shape", "values")
        shown = [dict(zip(fields, row, strict=True)) for row in rows]
        output.print_json("run", facts | {"outputs": shown})
    else:
        output.print_pairs(title, _shown(facts, output_file))
        output.out.print()
        output.print_table(("output", "type", "shape", "values"), rows, right=())
    return output.EXIT_DONE


def _timed(
    program: CompiledModel, given: dict[str, Any], repeat: int, title: str
) -> tuple[dict[str, Any], list[float]]:
    seconds = []
    outputs: dict[str, Any] = {}
    with language.showing_steps(title) as on_progress:
        for k in range(repeat):
            if on_progress is not None:
                on_progress("running", k, repeat)
            began = time.perf_counter()
            outputs = program(given)
            seconds.append(time.perf_counter() - began)
    return outputs, seconds


def _shown(facts: dict[str, Any], file: Path | None) -> dict[str, str]:
    shown = {
        "file": facts["file"],
        "compiled in": readable_seconds(facts["compile_seconds"]),
        "first run": readable_seconds(facts["first_seconds"]),
        "best run": f"{readable_seconds(facts['best_seconds'])} on {facts['runs_on']}",
        "planned": readable_nbytes(facts["planned_nbytes"]),
        "peak": f"{readable_nbytes(facts['peak_nbytes'])}, all of this process",
    }
    if facts["on_cpu"]:
        shown["on the CPU"] = "; ".join(dict.fromkeys(facts["on_cpu"].values()))
    return shown | ({} if file is None else {"written to": str(file)})


def readable_seconds(seconds: float) -> str:
    """With three digits, in s, ms or µs."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def peak_nbytes() -> int:
    """The most memory that this process has had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def profile(
    model: ModelName,
    input: Inputs = None,  # noqa: A002 - the option's name
    dim: onnx.Dims = None,
    memory: onnx.Memory = None,
    threads: Threads = None,
    device: Device = None,
    seed: Seed = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a trace, for `arenite show` and others."),
    ] = None,
    offline: onnx.Offline = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Run an ONNX model with time stamps: which kernels take how long, and what the machine could.

    Inputs are given as for `arenite run`.
    """
    from arenite.cli import arrays

    opened, title = onnx.opened(model, offline=offline, command="profile")
    sizes = onnx.sizes_of(opened, dim)
    given = arrays.arrays_of(opened, input, sizes, seed)
    program, _ = onnx.compiled(
        opened, title, memory=memory, threads=threads, sizes=sizes, device=device
    )
    with program:
        program(given)  # what only the first run does is no part of it
        found = program.profile(given)
    if trace is not None:
        output.write_file(trace, found.to_chrome_trace())
    if json:
        from json import loads

        output.print_json("profile", {"file": opened.path, **loads(found.to_json())})
    else:
        for line in str(found).splitlines():
            output.put(line)
    return output.EXIT_DONE

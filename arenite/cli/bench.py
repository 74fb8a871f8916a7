"""`arenite bench`: how long a run takes, beside ONNX Runtime where that is asked for.

The peer has a process of its own, and both take turns: what else the machine does meanwhile hits
both alike.
"""

from __future__ import annotations

import json as json_text
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from arenite.cli import language, onnx, output
from arenite.cli.options import Device, ModelName, Threads
from arenite.cli.run import Inputs, Seed, readable_seconds
from arenite.errors import InvalidArgument, NotSupported, RunFailed
from arenite.program.closing import Closing

if TYPE_CHECKING:
    from arenite.model import CompiledModel

#: What can be compared with.
PEERS = ("onnxruntime",)

#: The peer: it reads what to do, a line a turn, and answers with the seconds of each run.
_PEER = """
import json, sys, time
import numpy as np
try:
    import onnxruntime
except ImportError as error:
    print(json.dumps({"missing": str(error)}), flush=True)
    sys.exit(0)
path, inputs, outputs, threads = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
options.log_severity_level = 3
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
with np.load(inputs) as loaded:
    feed = {name: loaded[name] for name in loaded.files}
names = [one.name for one in session.get_outputs()]
results = dict(zip(names, session.run(None, feed)))
np.savez(outputs, **{name: one for name, one in results.items() if isinstance(one, np.ndarray)})
print(json.dumps({"version": onnxruntime.__version__}), flush=True)
for line in sys.stdin:
    end = time.perf_counter() + float(line)
    seconds = []
    while not seconds or time.perf_counter() < end:
        began = time.perf_counter()
        session.run(None, feed)
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": seconds}), flush=True)
"""


@dataclass(frozen=True)
class _Side:
    """Who ran, and how long its runs took, turn by turn."""

    name: str
    turns: list[list[float]]

    @property
    def best(self) -> float:
        return min(min(turn) for turn in self.turns)

    @property
    def usual(self) -> float:
        """The median over the turns of each turn's median."""
        return median(median(turn) for turn in self.turns)

    def row(self) -> tuple[str, ...]:
        n_runs = sum(map(len, self.turns))
        return (self.name, readable_seconds(self.usual), readable_seconds(self.best), str(n_runs))


def bench(
    model: ModelName,
    input: Inputs = None,  # noqa: A002 - the option's name
    dim: onnx.Dims = None,
    memory: onnx.Memory = None,
    threads: Threads = None,
    device: Device = None,
    against: Annotated[
        str | None, typer.Option(metavar="PEER", help="Compare with a peer: onnxruntime.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Python that has the peer.")
    ] = None,
    turns: Annotated[int, typer.Option(min=1, help="Turns that each takes.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long a turn is.")] = 0.5,
    seed: Seed = 0,
    offline: onnx.Offline = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Time an ONNX model; with --against onnxruntime the peer too, turn by turn.

    Inputs are given as for `arenite run`. The usual time is the median of the turns' medians. Close
    what else runs on the machine.
    """
    from arenite.cli import arrays

    if against is not None and against not in PEERS:
        raise InvalidArgument(f"--against {against}: it is compared with {', '.join(PEERS)}")
    opened, title = onnx.opened(model, offline=offline, command="bench")
    sizes = onnx.sizes_of(opened, dim)
    given = arrays.arrays_of(opened, input, sizes, seed)
    program, _ = onnx.compiled(
        opened, title, memory=memory, threads=threads, sizes=sizes, device=device
    )
    with ExitStack() as stack:
        stack.enter_context(program)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        outputs = program(given)
        ours = _Side("arenite", [])
        sides = [ours]
        peer = None
        if against is not None:
            peer = _Peer(opened.path, given, Path(folder), program.threads, python)
            stack.enter_context(peer)
            peer.wait()
            sides.append(_Side(f"{against} {peer.version}", []))
        with language.showing_steps(title) as on_progress:
            for k in range(turns):
                if on_progress is not None:
                    on_progress("running", k, turns)
                ours.turns.append(_turn(program, given, seconds))
                if peer is not None:
                    sides[1].turns.append(peer.turn(seconds))
        difference = None if peer is None else peer.difference(outputs)
    _print(title, opened.path, sides, difference, json)
    return output.EXIT_DONE


def _turn(program: CompiledModel, given: dict[str, Any], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    found: list[float] = []
    while not found or time.perf_counter() < end:
        began = time.perf_counter()
        program(given)
        found.append(time.perf_counter() - began)
    return found


def _print(
    title: str,
    path: str,
    sides: list[_Side],
    difference: float | None,
    json: bool,
) -> None:
    ratio = sides[1].usual / sides[0].usual if len(sides) > 1 else None
    if json:
        fields = {
            "file": path,
            "sides": [
                {"name": one.name, "usual_seconds": one.usual, "best_seconds": one.best}
                for one in sides
            ],
            "ratio": ratio,
            "largest_difference": difference,
        }
        output.print_json("bench", fields)
        return
    output.print_table(
        ("who", "usual", "best", "runs"),
        [one.row() for one in sides],
        right=("usual", "best", "runs"),
    )
    if ratio is not None:
        output.out.print()
        output.print_pairs(
            title,
            {
                "ratio": f"{ratio:.2f}: their time over ours",
                "largest difference": "none to compare" if difference is None
                else f"{difference:.3g}",
            },
        )  # fmt: skip


class _Peer(Closing):
    """ONNX Runtime in a process of its own."""

    def __init__(
        self, path: str, given: dict[str, Any], folder: Path, threads: int, python: Path | None
    ) -> None:
        from arenite.cli import arrays

        inputs, self._outputs = folder / "inputs.npz", folder / "outputs.npz"
        arrays.saved(inputs, {name: np.asarray(one) for name, one in given.items()})
        executable = sys.executable if python is None else str(python)
        command = [executable, "-c", _PEER, path, str(inputs), str(self._outputs), str(threads)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._executable = executable
        self.version = ""

    def wait(self) -> None:
        """Until it is ready; NotSupported where it is not there."""
        answer = self._answer()
        if "missing" in answer:
            raise NotSupported(
                f"{self._executable} has no onnxruntime ({answer['missing']}): install it, or name "
                "a Python that has it with --python"
            )
        self.version = answer["version"]

    def close(self) -> None:
        """Its process ends."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip().splitlines()
            raise RunFailed(f"onnxruntime ended: {said[-1] if said else 'without a word'}")
        answer: dict[str, Any] = json_text.loads(line)
        return answer

    def turn(self, seconds: float) -> list[float]:
        """The seconds of each run of a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        found: list[float] = self._answer()["seconds"]
        return found

    def difference(self, outputs: dict[str, Any]) -> float | None:
        """The largest between its outputs and others."""
        most = None
        with np.load(self._outputs) as theirs:
            for name in theirs.files:
                ours = outputs.get(name)
                if not isinstance(ours, np.ndarray) or ours.dtype.kind not in "biuf":
                    continue
                if ours.shape != theirs[name].shape:
                    return float("inf")
                if ours.size:
                    apart = np.abs(ours.astype(np.float64) - theirs[name]).max()
                    most = max(most or 0.0, float(apart))
        return most

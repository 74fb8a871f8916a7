"""tune_graph: measure how the kernels of a graph are best cut on this machine, and keep it.

Each kernel that register tiles compute is compiled alone, on its own shapes, in the ways that its
generator names. One part of a choice is changed at a time, from the usual one on; all ways are run
in turn, on one thread and on all, and the best time of each counts. What does not write the very
bytes that the usual way writes, on one thread or on several, is never chosen. So a tuned program
gives the results of one that is not, on any number of threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from arenite import passes
from arenite.errors import InvalidArgument
from arenite.ir.dim import Var, evaluate
from arenite.ir.graph import Graph
from arenite.pipeline.build import cost_ns
from arenite.pipeline.choices import KernelTimes, Times, keep_choice, keep_times, times_of
from arenite.pipeline.contents import tunable
from arenite.pipeline.trial import Trial
from arenite.pipeline.tuning import Tried, Tuning
from arenite.runtime.compile_pool import host_target
from arenite.runtime.limits import limits
from arenite.schedule import Kernel

#: Rounds in which all that is compared is run, and seconds of them, both at least; and the rounds
#: after which only what is near the best is run.
ROUNDS = 15
RACE_SECONDS = 0.2
FIRST_ROUNDS = 4
NEAR = 1.4
#: What a choice must gain to be one; and what it must gain again, against the usual one alone.
GAIN = 1.04
GAIN_AGAIN = 1.02
#: And what it may lose on either number of threads.
LOSS = 1.02
#: A size that is a variable, where no other value is given.
USUAL_SIZE = 128

#: What is done, how much of it, and of how much.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kernel of which there may be many, and the ways it can be cut, the usual one first."""

    kernel: Kernel
    content: str
    choices: tuple[str, ...]
    n_uses: int = 1


@dataclass(slots=True)
class _Clock:
    """How much time is left."""

    seconds: float | None
    began: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and self.spent >= self.seconds


def tune_graph(
    graph: Graph,
    *,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float | None = None,
    on_progress: OnProgress | None = None,
) -> Tuning:
    """Tune the kernels of a graph; programs with these kernels are from now on cut as was best.

    `threads` are those measured beside one, as many as there are CPUs if not given; `sizes` the
    values of variables, by name; `seconds` about how long it may take: the heaviest kernels are
    tuned first. What was measured before is not measured again.
    """
    n_threads = len(os.sched_getaffinity(0)) if threads is None else threads
    if n_threads < 1:
        raise InvalidArgument(f"a run needs at least one thread, not {threads}")
    clock = _Clock(seconds)
    host = host_target()
    simplified, _ = passes.run(graph, passes.PASSES)
    bindings = _bindings((*simplified.vars, *simplified.found), sizes or {})
    variables = {var.symbol: var for var in (*simplified.vars, *simplified.found)}
    subjects = _subjects(simplified, bindings)
    tried: list[Tried] = []
    choices: dict[str, str] = {}
    n_done = 0
    for subject in subjects:
        if on_progress is not None:
            on_progress(subject.kernel.name, n_done, len(subjects))
        about = _about(subject, n_threads, bindings)
        found = times_of(subject.content, about)
        is_known = found is not None and set(found.times) <= set(subject.choices)
        if found is None or not is_known:
            if clock.is_over:
                break
            trial = Trial(subject.kernel, host, variables, bindings, cost_ns(subject.kernel))
            try:
                search = _Search(trial, subject.choices, n_threads, clock)
                found = search.result()
            finally:
                trial.close()
            if search.is_whole:
                keep_times(subject.content, about, found)
        is_usual = found.chosen == subject.choices[0]
        keep_choice(subject.content, None if is_usual else found.chosen)
        if not is_usual:
            choices[subject.content] = found.chosen
        tried += _rows(subject, found, bindings, is_known)
        n_done += 1
    if on_progress is not None:
        on_progress("", n_done, len(subjects))
    return Tuning(tuple(tried), choices, n_threads, len(subjects) - n_done, clock.spent)


def _bindings(variables: Sequence[Var], given: Mapping[str, int]) -> dict[str, int]:
    """A value for every variable."""
    unknown = set(given) - {var.name for var in variables}
    if unknown:
        names = ", ".join(var.name for var in variables) or "none"
        raise InvalidArgument(f"no size is called {', '.join(sorted(unknown))}; there are: {names}")
    return {
        var.name: given.get(var.name, max(var.low, min(var.high, USUAL_SIZE))) for var in variables
    }


def _subjects(simplified: Graph, bindings: Mapping[str, int]) -> list[_Subject]:
    """Distinct kernels that can be cut in several ways, those that take longest first."""
    found: dict[str, _Subject] = {}
    for kernel, built, content in tunable(simplified):
        known = found.get(content)
        n_uses = 1 if known is None else known.n_uses + 1
        first = kernel if known is None else known.kernel
        found[content] = _Subject(first, content, built.choices, n_uses)

    def work(subject: _Subject) -> int:
        return subject.n_uses * evaluate(subject.kernel.operations, bindings)

    return sorted(found.values(), key=work, reverse=True)


def _about(subject: _Subject, n_threads: int, bindings: Mapping[str, int]) -> str:
    """What the times of a kernel depend on, beside itself."""
    return f"{n_threads} threads, sizes {sorted(bindings.items())}, {subject.choices}"


class _Search:
    """From the usual choice on, one part of it after the other."""

    def __init__(self, trial: Trial, choices: Sequence[str], n_threads: int, clock: _Clock) -> None:
        self._trial, self._choices, self._clock = trial, choices, clock
        self._threads = (1,) if n_threads == 1 else (1, n_threads)
        self._usual = choices[0]
        self._best: dict[str, list[float]] = {}
        self._differs: set[str] = set()
        self._expected = b""
        #: Whether time was enough to try everything.
        self.is_whole = True

    def result(self) -> KernelTimes:
        self._add([self._usual])
        self._expected = self._trial.result(self._usual, 1)
        current = self._usual
        for part in range(len(_parts(self._usual))):
            near = [one for one in self._choices if _differ_in(one, current) == [part]]
            if self._clock.is_over:
                self.is_whole = False
                break
            self._add(near)
            rivals = [current, *(one for one in near if one not in self._differs)]
            self._race(rivals)
            best = min(rivals, key=self._score)
            if self._score(current) > self._score(best) * GAIN**2:
                current = best
        chosen = current if self._holds(current) else self._usual
        times = {
            name: Times(best[0], best[-1], name not in self._differs)
            for name, best in self._best.items()
        }
        return KernelTimes(chosen, times)

    def _add(self, choices: Sequence[str]) -> None:
        """Compile these; run each once on every number of threads and look at its bytes."""
        new = [choice for choice in choices if choice not in self._best]
        self._trial.add(new)
        for choice in new:
            results = {self._trial.result(choice, threads) for threads in self._threads}
            if self._expected and results != {self._expected}:
                self._differs.add(choice)
            self._best[choice] = [self._trial.seconds(choice, n) for n in self._threads]

    def _race(self, rivals: Sequence[str]) -> None:
        """All of them in turn, the far ones soon no more."""
        clock, n_rounds = _Clock(RACE_SECONDS), 0
        while n_rounds < ROUNDS or not clock.is_over:
            if n_rounds == FIRST_ROUNDS:
                limit = min(map(self._score, rivals)) * NEAR**2
                rivals = [one for one in rivals if self._score(one) <= limit]
            for k, threads in enumerate(self._threads):
                for one in rivals:
                    took = self._trial.seconds(one, threads)
                    self._best[one][k] = min(self._best[one][k], took)
            n_rounds += 1

    def _score(self, choice: str) -> float:
        return self._best[choice][0] * self._best[choice][-1]

    def _holds(self, choice: str) -> bool:
        """Whether a choice still gains when it runs against the usual one alone, from the start."""
        if choice == self._usual:
            return True
        before = {one: self._best.pop(one) for one in (self._usual, choice)}
        self._add([self._usual, choice])
        self._race([self._usual, choice])
        new, old = self._best[choice], self._best[self._usual]
        holds = (
            new[0] * new[-1] * GAIN_AGAIN**2 <= old[0] * old[-1]
            and new[0] <= old[0] * LOSS
            and new[-1] <= old[-1] * LOSS
        )
        for one, best in before.items():
            self._best[one] = [min(pair) for pair in zip(best, self._best[one], strict=True)]
        return holds


def _parts(choice: str) -> list[str]:
    return choice.split(", ")


def _differ_in(one: str, other: str) -> list[int]:
    """The numbers of the parts in which two choices differ."""
    pairs = zip(_parts(one), _parts(other), strict=True)
    return [k for k, (a, b) in enumerate(pairs) if a != b]


def _rows(
    subject: _Subject, found: KernelTimes, bindings: Mapping[str, int], is_known: bool
) -> list[Tried]:
    """What was tried of a kernel, the usual choice first, then the fastest."""
    kernel = subject.kernel
    operations = evaluate(kernel.operations, bindings)
    nbytes = evaluate(kernel.reads_nbytes + kernel.writes_nbytes, bindings)
    most = limits()
    usual = subject.choices[0]

    def order(item: tuple[str, Times]) -> tuple[bool, float]:
        return item[0] != usual, item[1].alone * item[1].together

    rows = []
    for name, times in sorted(found.times.items(), key=order):
        notes = [
            word
            for word, holds in (
                ("usual", name == usual),
                ("chosen", name == found.chosen),
                ("other bits", not times.is_same),
                ("measured before", is_known and name == found.chosen),
            )
            if holds
        ]
        share = most.share(operations / times.alone / 1e9, nbytes / times.alone / 1e9)
        rows.append(
            Tried(
                kernel.name,
                subject.n_uses,
                name,
                times.alone,
                times.together,
                *share,
                ", ".join(notes),
            )
        )
    return rows

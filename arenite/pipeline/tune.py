"""tune_graph: measure how the kernels of a graph are best cut on this machine, and keep it.

Each kernel that register tiles compute is compiled alone, on its own shapes, in the ways that its
generator names. One part of a choice is changed at a time, from the usual one on; all ways are run
in turn, under every condition (sizes, numbers of threads), and the second best time of each counts.
What does not write the very bytes that the usual way writes, on one thread or on several, is never
chosen. So a tuned program gives the results of one that is not, on any number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import geometric_mean

from arenite import passes
from arenite.errors import InvalidArgument
from arenite.ir.dim import Var, bounds, evaluate
from arenite.ir.graph import Graph
from arenite.pipeline.choices import KernelTimes, Times, keep_choice, keep_times, times_of
from arenite.pipeline.contents import tunable
from arenite.pipeline.program import refuse_cut
from arenite.pipeline.tuning import KernelTuning, Tuning
from arenite.program.backend import Backend, Trial, backend_of
from arenite.program.options import USUAL, Options
from arenite.program.threads import chosen_n_threads
from arenite.schedule import Kernel

#: Rounds in which all that is compared is run, and seconds of them, both at least, and seconds at
#: the most; and the rounds after which only what is near the best is run.
ROUNDS = 15
RACE_SECONDS = 0.2
MOST_RACE_SECONDS = 1.5
FIRST_ROUNDS = 4
NEAR = 1.4
#: What a choice must gain to be one; and what it must gain again, against the usual one alone, so
#: many times: noise is seldom on one side so often.
GAIN = 1.04
GAIN_AGAIN = 1.02
TIMES_AGAIN = 2
#: And what it may lose under any one condition.
LOSS = 1.02
#: A size that is a variable, where no values are given: this, and the least it may be.
USUAL_SIZE = 128

#: What is done, how much of it, and of how much.
OnProgress = Callable[[str, int, int], None]
Bindings = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kernel of which there may be many, the ways it can be cut, the usual one first, and the
    values of sizes that it is measured with."""

    kernel: Kernel
    content: str
    choices: tuple[str, ...]
    variables: Mapping[str, Var]  # by symbol
    bindings: tuple[Bindings, ...]
    n_uses: int

    @property
    def work(self) -> int:
        return self.n_uses * evaluate(self.kernel.operations, self.bindings[0])


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
    options: Options = USUAL,
    *,
    threads: int | None = None,
    sizes: Sequence[Bindings] = (),
    seconds: float | None = None,
    on_progress: OnProgress | None = None,
) -> Tuning:
    """Tune the kernels of a graph; programs with these kernels are from now on cut as was best.

    `threads` are those measured beside one, as many as the process may keep busy if not given;
    `sizes` values of the variables by name, of which several may be given; `seconds` about how long
    it may take: the heaviest kernels are tuned first. What was measured before is not
    measured again.
    """
    _check(graph, sizes, seconds)
    n_threads = chosen_n_threads(threads)
    counts = (1,) if n_threads == 1 else (1, n_threads)
    clock = _Clock(seconds)
    backend = backend_of(options.device)
    simplified, _ = passes.run(graph, (*passes.NEUTRAL, *backend.ways(options)[0]))
    variables = (*simplified.vars, *simplified.found)
    bindings = _bindings(variables, sizes)
    subjects = _subjects(simplified, options, variables, bindings)
    program_nbytes = sum(bounds(node.nbytes)[1] for node in simplified.constants)
    tried: list[KernelTuning] = []
    choices: dict[str, str] = {}
    n_done = 0
    for subject in subjects:
        if on_progress is not None:
            on_progress(subject.kernel.name, n_done, len(subjects))
        times = _times(subject, backend, counts, program_nbytes, clock)
        if times is None:
            continue
        is_usual = times.chosen == subject.choices[0]
        keep_choice(subject.content, None if is_usual else times.chosen)
        if not is_usual:
            choices[subject.content] = times.chosen
        tried += _rows(subject, options.device, times)
        n_done += 1
    if on_progress is not None:
        on_progress("", n_done, len(subjects))
    used = {var.name for subject in subjects for var in subject.variables.values()}
    distinct = bindings if used else bindings[:1]
    conditions = tuple(_condition(one, used, count) for one in distinct for count in counts)
    return Tuning(tuple(tried), choices, conditions, len(subjects) - n_done, clock.spent)


def _check(graph: Graph, sizes: Sequence[Bindings], seconds: float | None) -> None:
    """Refuse what cannot be meant."""
    refuse_cut(graph, "tuned; compile it with arenite.compile and give that to arenite.tune")
    if seconds is not None and not seconds >= 0:
        raise InvalidArgument(f"{seconds} seconds are no time: give 0 or more, or None")
    if isinstance(sizes, Mapping):
        raise InvalidArgument(f"sizes are a list, with one set of values or more: [{dict(sizes)}]")
    for name, value in (pair for one in sizes for pair in one.items()):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(f"size {name} is {value!r}, which is no whole number")


def _bindings(variables: Sequence[Var], given: Sequence[Bindings]) -> tuple[Bindings, ...]:
    """A value for every variable, once or several times."""
    names = [var.name for var in variables]
    for one in given:
        unknown = sorted(set(one) - set(names))
        if unknown:
            known = ", ".join(names) or "none"
            raise InvalidArgument(f"no size is called {', '.join(unknown)}; there are: {known}")
    usual = {var.name: max(var.low, min(var.high, USUAL_SIZE)) for var in variables}
    least = {var.name: min(var.high, max(var.low, 1)) for var in variables}
    chosen = [usual | dict(one) for one in given] if given else [usual, least]
    return tuple(one for k, one in enumerate(chosen) if one not in chosen[:k])


def _condition(bindings: Bindings, used: Container[str], n_threads: int) -> str:
    sizes = "".join(f"{name} {value}, " for name, value in bindings.items() if name in used)
    return f"{sizes}{n_threads} thread{'' if n_threads == 1 else 's'}"


def _subjects(
    simplified: Graph,
    options: Options,
    variables: Sequence[Var],
    bindings: tuple[Bindings, ...],
) -> list[_Subject]:
    """Distinct kernels that can be cut in several ways, those that take longest first."""
    subjects: dict[str, _Subject] = {}
    by_symbol = {var.symbol: var for var in variables}
    for kernel, built, content in tunable(simplified, options):
        own = {name: by_symbol[name] for name in built.loops.sizes}
        before = subjects.get(content)
        subjects[content] = _Subject(
            kernel if before is None else before.kernel,
            content,
            built.choices,
            own,
            bindings if own else bindings[:1],
            1 if before is None else before.n_uses + 1,
        )
    return sorted(subjects.values(), key=lambda subject: subject.work, reverse=True)


def _times(
    subject: _Subject, backend: Backend, counts: Sequence[int], program_nbytes: int, clock: _Clock
) -> KernelTimes | None:
    """What a kernel takes: as measured before, else measured now; None where there is no time."""
    used = {var.name for var in subject.variables.values()}
    conditions = [(case, n) for case in range(len(subject.bindings)) for n in counts]
    names = [_condition(subject.bindings[case], used, n) for case, n in conditions]
    about = f"{names} {subject.choices}"
    times = times_of(subject.content, about, subject.choices, len(conditions))
    if times is not None or clock.is_over:
        return times
    kernel, variables, bindings = subject.kernel, subject.variables, subject.bindings
    with closing(backend.trial(kernel, variables, bindings, program_nbytes)) as trial:
        search = _Search(trial, subject.choices, conditions, clock)
        times = search.result()
    if search.is_whole:
        keep_times(subject.content, about, times)
    return times


class _Search:
    """From the usual choice on, one part of it after the other. Conditions are cases of the trial
    and numbers of threads."""

    def __init__(
        self,
        trial: Trial,
        choices: Sequence[str],
        conditions: Sequence[tuple[int, int]],
        clock: _Clock,
    ) -> None:
        self._trial, self._choices, self._clock = trial, choices, clock
        self._conditions = conditions
        self._usual = choices[0]
        #: By choice, under each condition: the two least times, of which the larger counts. The
        #: clock of a thread that others disturb may show too little, once in a while.
        self._least: dict[str, list[tuple[float, float]]] = {}
        self._differs: set[str] = set()
        self._expected: list[bytes] = []
        #: Whether time was enough to try everything.
        self.is_whole = True

    def result(self) -> KernelTimes:
        self._add([self._usual])
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
            if self._score(current) > self._score(best) * GAIN:
                current = best
        chosen = current if self._holds(current) else self._usual
        times = {
            name: Times(tuple(self._seconds(name)), name not in self._differs)
            for name in self._least
        }
        return KernelTimes(chosen, times)

    def _add(self, choices: Sequence[str]) -> None:
        """Compile these; run each once under every condition and look at its bytes."""
        new = [choice for choice in choices if choice not in self._least]
        trial = self._trial
        trial.add(new)
        for choice in new:
            results = [trial.result(choice, *condition) for condition in self._conditions]
            if not self._expected:
                # One thread is what all others must agree with.
                self._expected = [trial.result(choice, case, 1) for case, _ in self._conditions]
            if results != self._expected:
                self._differs.add(choice)
            self._forget(choice)
            self._run(choice)

    def _run(self, choice: str) -> None:
        least = self._least[choice]
        for k, condition in enumerate(self._conditions):
            best, second, _ = sorted((*least[k], self._trial.seconds(choice, *condition)))
            least[k] = best, second

    def _forget(self, choice: str) -> None:
        self._least[choice] = [(math.inf, math.inf)] * len(self._conditions)

    def _seconds(self, choice: str) -> list[float]:
        """Under each condition; of what ran once, that."""
        return [second if second < math.inf else best for best, second in self._least[choice]]

    def _race(self, rivals: Sequence[str]) -> None:
        """All of them in turn, the far ones soon no more."""
        least, most, n_rounds = _Clock(RACE_SECONDS), _Clock(MOST_RACE_SECONDS), 0
        while n_rounds < ROUNDS or not least.is_over:
            if n_rounds >= FIRST_ROUNDS and (most.is_over or self._clock.is_over):
                break
            if n_rounds == FIRST_ROUNDS:
                limit = min(map(self._score, rivals)) * NEAR
                rivals = [one for one in rivals if self._score(one) <= limit]
            for one in rivals:
                self._run(one)
            n_rounds += 1

    def _score(self, choice: str) -> float:
        return geometric_mean(self._seconds(choice))

    def _holds(self, choice: str) -> bool:
        """Whether a choice gains each time that it runs against the usual one alone."""
        return choice == self._usual or all(self._gains(choice) for _ in range(TIMES_AGAIN))

    def _gains(self, choice: str) -> bool:
        """Whether it does now, whatever was measured before."""
        pair = (choice, self._usual)
        before = [self._least[one] for one in pair]
        for one in pair:
            self._forget(one)
        self._race(pair)
        new, old = map(self._seconds, pair)
        gains = geometric_mean(new) * GAIN_AGAIN <= geometric_mean(old) and all(
            a <= b * LOSS for a, b in zip(new, old, strict=True)
        )
        for one, earlier in zip(pair, before, strict=True):
            merged = [sorted(a + b) for a, b in zip(earlier, self._least[one], strict=True)]
            self._least[one] = [(best, second) for best, second, *_ in merged]
        return gains


def _parts(choice: str) -> list[str]:
    return choice.split(", ")


def _differ_in(one: str, other: str) -> list[int]:
    """The numbers of the parts in which two choices differ."""
    pairs = zip(_parts(one), _parts(other), strict=True)
    return [k for k, (a, b) in enumerate(pairs) if a != b]


def _rows(subject: _Subject, device: str, found: KernelTimes) -> list[KernelTuning]:
    """What was tried of a kernel, the usual choice first, then the fastest."""
    kernel, usual = subject.kernel, subject.choices[0]
    sizes = subject.bindings[0]
    arithmetic = {name: evaluate(count, sizes) for name, count in kernel.arithmetic.items()}
    nbytes = evaluate(kernel.reads_nbytes + kernel.writes_nbytes, sizes)
    most = backend_of(device).limits(device)

    def order(item: tuple[str, Times]) -> tuple[bool, float]:
        return item[0] != usual, geometric_mean(item[1].seconds)

    rows = []
    for name, times in sorted(found.times.items(), key=order):
        share, bound = most.share(arithmetic, nbytes, times.seconds[0])
        is_usual, is_chosen = name == usual, name == found.chosen
        rows.append(
            KernelTuning(
                kernel.name,
                subject.n_uses,
                name,
                times.seconds,
                share,
                bound,
                is_usual,
                is_chosen,
                times.is_same,
            )
        )
    return rows

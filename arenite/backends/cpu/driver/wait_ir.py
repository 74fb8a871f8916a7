"""Waiting and waking in LLVM IR.

In: the module under construction. Out: functions in it. Who waits spins, then sleeps on a futex in
its own record. Who sleeps says so first and looks once more; who changes something looks for
sleepers afterwards; all of it sequentially consistent, so that no wake is lost and an awake team
costs no system call. A sleeper at the gate is not woken by what happens inside a run.

The caller, once it has slept, watches the processor time of the others. Who is awake and yet does
not run, since its CPU is another program's for the moment, holds the others up. If that comes so
often that they would be better off without it, it is asked to rest: when it has done what it had
begun, it stays away for many times as long as it was waited for. When there is work again it first
spins for a while with nothing to do: where its CPU is still taken, time is missing between two
looks at the clock, and it rests on, twice as long. So the others pay once for what another program
takes, and not for every attempt; the caller, while it is alone, claims whole launches at once.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.cpu.driver.entry_ir import entry_field, i32, i64
from arenite.backends.cpu.driver.ir_text import Function, Module, Value, Variable
from arenite.backends.cpu.driver.layout import MAX_CLAIMS, Imports, Run, Team, Worker
from arenite.backends.cpu.target import Target

_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129

#: A wait asks for no rest if nobody was waited for in so many times its length before: the CPU was
#: another program's for a moment, and is the worker's again when it could begin to rest.
RARE_FACTOR = 16
#: A rest is so many times as long as the wait it is for; twice as long as the one before where that
#: is over for less than it took. So a CPU that stays another program's is asked ever less often.
REST_FACTOR = 8
MAX_REST_NS = 500_000_000


def system_calls(module: Module, target: Target) -> None:
    """futex, sched_yield and clock_gettime, through libc's `syscall`."""
    futex, sched_yield, clock_gettime = (202, 24, 228) if target.is_x86 else (98, 124, 113)
    for name, operation in (("sleep", _FUTEX_WAIT_PRIVATE), ("wake_one", _FUTEX_WAKE_PRIVATE)):
        f = module.function(name, "void", imports="ptr", word="ptr", value="i64", timeout="ptr")
        call = f.load("ptr", f["imports"], Imports.SYSCALL)
        f.call(
            "i64",
            call,
            *(i64(futex), f["word"], i64(operation)),
            *(f["value"], f["timeout"], Value("ptr", "null"), i64(0)),
        )
    f = module.function("give_way", "void", imports="ptr")
    f.call("i64", f.load("ptr", f["imports"], Imports.SYSCALL), i64(sched_yield))
    f = module.function("time_of", "void", imports="ptr", clock="i64", time="ptr")
    call = f.load("ptr", f["imports"], Imports.SYSCALL)
    f.call("i64", call, i64(clock_gettime), f["clock"], f["time"])


def watch(module: Module) -> None:
    """Worker 0, in a long wait: ask those of the first `n` workers to rest that are awake, have had
    less than half of the time since `began` and were waited for not long ago; where that is 0,
    watching begins. Returns when it began."""
    f = module.function("watch", "i64", team="ptr", n="i64", began="i64")
    team = f["team"]
    imports, time = f.load("ptr", team, Team.IMPORTS), f.at(team, Team.TIME)
    now = f.call("i64", "clock")
    begins = f.eq(f["began"], 0)
    clocks = f.sub(now, f["began"])

    def nanoseconds(clocks: Value) -> Value:
        return f.lshr(f.mul(clocks, f.load("i64", team, Team.NS_SCALE)), 16)

    waited = nanoseconds(clocks)
    with f.count(1, f["n"]) as index:
        record = f.at(team, f.add(f.mul(index, Worker.NBYTES), Team.WORKERS))
        f.call("void", "time_of", imports, f.load("i64", record, Worker.CPU_CLOCK), time)
        spent = f.add(f.mul(f.load("i64", time), 1_000_000_000), f.load("i64", time, 8))
        with f.if_(begins):
            f.store(spent, record, Worker.CPU_NS)
            held = f.load("i64", record, Worker.HELD_AT)
            since = f.load("i64", record, Worker.FREE_SINCE, order="monotonic")
            since = f.select(f.lt(since, held), held, since)
            f.store(since, record, Worker.FREE_SINCE, order="monotonic")
        with f.if_(f.eq(begins, 0)):
            has_run = f.sub(spent, f.load("i64", record, Worker.CPU_NS))
            awake = f.eq(f.load("i32", record, Worker.ASLEEP, order="seq_cst"), Worker.AWAKE)
            with f.if_(f.and_(awake, f.lt(f.shl(has_run, 1), waited))):
                f.store(now, record, Worker.HELD_AT)
                since = f.load("i64", record, Worker.FREE_SINCE, order="monotonic")
                free = f.sub(f["began"], since)
                with f.if_(f.lt(free, f.mul(clocks, RARE_FACTOR))):
                    rest = f.mul(waited, REST_FACTOR)
                    last = f.load("i64", record, Worker.TIMEOUT + 8)
                    twice = f.select(f.lt(nanoseconds(free), last), f.shl(last, 1), 0)
                    rest = f.select(f.lt(rest, twice), twice, rest)
                    rest = f.select(f.lt(rest, MAX_REST_NS), rest, MAX_REST_NS)
                    f.store(rest, record, Worker.REST_NS, order="monotonic")
    f.ret(f.select(begins, now, f["began"]))


def rest(f: Function, team: Value, record: Value) -> None:
    """Stay away for as long as was asked for, unless the team ends."""
    imports, timeout = f.load("ptr", team, Team.IMPORTS), f.at(record, Worker.TIMEOUT)
    f.store(f.load("i64", record, Worker.REST_NS, order="monotonic"), timeout, 8)
    with f.if_(f.eq(f.load("i32", record, Worker.AWAY, order="monotonic"), 0)):
        f.store(i32(1), record, Worker.AWAY, order="monotonic")
        f.exchange("add", team, Team.N_AWAY, i32(1))
    f.store(i32(Worker.RESTING), record, Worker.ASLEEP, order="seq_cst")
    f.exchange("add", team, Team.SLEEPERS, i32(1))
    with f.if_(f.eq(f.load("i64", team, Team.STOP, order="seq_cst"), 0)):
        word = f.at(record, Worker.ASLEEP)
        f.call("void", "sleep", imports, word, i64(Worker.RESTING), timeout)
    f.store(i32(Worker.AWAKE), record, Worker.ASLEEP, order="seq_cst")
    f.exchange("sub", team, Team.SLEEPERS, i32(1))
    f.store(i64(0), record, Worker.REST_NS, order="monotonic")
    f.store(f.add(f.load("i64", record, Worker.N_RESTS), 1), record, Worker.N_RESTS)
    f.store(f.call("i64", "clock"), record, Worker.FREE_SINCE, order="monotonic")


def try_cpu(module: Module) -> None:
    """A worker that has rested spins for a while, and is to rest on if its CPU went to others for
    more than an eighth of that."""
    f = module.function("try_cpu", "void", team="ptr", record="ptr")
    team, record = f["team"], f["record"]
    clocks = f.load("i64", team, Team.TRY_CLOCKS)
    began = f.call("i64", "clock")
    before, lost = f.variable("i64", began), f.variable("i64", 0)
    with f.loop():
        f.call("void", "pause")
        now = f.call("i64", "clock")
        gap = f.sub(now, before.get())
        before.set(now)
        with f.if_(f.lt(f.load("i64", team, Team.SPIN_CLOCKS), gap)):
            lost.set(f.add(lost.get(), gap))
        with f.if_(f.lt(clocks, f.shl(lost.get(), 3))):
            twice = f.shl(f.load("i64", record, Worker.TIMEOUT + 8), 1)
            twice = f.select(f.lt(twice, MAX_REST_NS), twice, MAX_REST_NS)
            f.store(twice, record, Worker.REST_NS, order="monotonic")
            f.ret()
        stops = f.ne(f.load("i64", team, Team.STOP, order="monotonic"), 0)
        with f.if_(f.or_(stops, f.lt(clocks, f.sub(now, began)))):
            come_back(f, team, record)
            f.ret()


def come_back(f: Function, team: Value, record: Value) -> None:
    """A worker is away no more, if it was."""
    with f.if_(f.ne(f.load("i32", record, Worker.AWAY, order="monotonic"), 0)):
        f.store(i32(0), record, Worker.AWAY, order="monotonic")
        f.exchange("sub", team, Team.N_AWAY, i32(1))


def look_around(module: Module) -> None:
    """Worker 0: whether all of the first `n` workers but itself are away."""
    f = module.function("look_around", "i64", team="ptr", n="i64")
    with f.if_(f.eq(f.load("i32", f["team"], Team.N_AWAY, order="monotonic"), 0)):
        f.ret(0)
    with f.count(1, f["n"]) as index:
        record = f.at(f["team"], f.add(f.mul(index, Worker.NBYTES), Team.WORKERS))
        with f.if_(f.eq(f.load("i32", record, Worker.AWAY, order="monotonic"), 0)):
            f.ret(0)
    f.ret(1)


def wakes(module: Module) -> None:
    """Wake those of the first `n` workers that sleep for this reason."""
    f = module.function("wake", "void", team="ptr", n="i64", reason="i32")
    in_run = f.eq(f["reason"], Worker.IN_RUN)
    counter = f.select(in_run, Team.WAITERS, Team.SLEEPERS)
    with f.if_(f.eq(f.load("i32", f["team"], counter, order="seq_cst"), 0)):
        f.ret()
    imports = f.load("ptr", f["team"], Team.IMPORTS)
    with f.count(0, f["n"]) as index:
        record = f.at(f["team"], f.add(f.mul(index, Worker.NBYTES), Team.WORKERS))
        asleep = f.load("i32", record, Worker.ASLEEP, order="seq_cst")
        with f.if_(f.eq(asleep, f["reason"])):
            awake = i32(Worker.AWAKE)
            _, woken = f.compare_exchange(record, Worker.ASLEEP, f["reason"], awake)
            with f.if_(woken):
                word = f.at(record, Worker.ASLEEP)
                f.call("void", "wake_one", imports, word, i64(1), Value("ptr", "null"))


def look_again(
    f: Function,
    team: Value,
    record: Value,
    reason: int,
    since: Variable,
    is_over: Callable[[], Value],
    timeout: Value,
) -> None:
    """Between two looks at a word: pause; after a while, sleep until somebody wakes us."""
    f.call("void", "pause")
    now = f.call("i64", "clock")
    with f.if_(f.eq(since.get(), 0)):
        since.set(now)
    waited = f.sub(now, since.get())
    imports = f.load("ptr", team, Team.IMPORTS)
    with f.if_(f.lt(f.load("i64", team, Team.YIELD_CLOCKS), waited)):
        f.call("void", "give_way", imports)
    with f.if_(f.lt(f.load("i64", team, Team.SPIN_CLOCKS), waited)):
        counter = Team.SLEEPERS if reason == Worker.AT_GATE else Team.WAITERS
        f.store(i32(reason), record, Worker.ASLEEP, order="seq_cst")
        f.exchange("add", team, counter, i32(1))
        with f.if_(f.eq(is_over(), 0)):
            f.call("void", "sleep", imports, f.at(record, Worker.ASLEEP), i64(reason), timeout)
        f.store(i32(Worker.AWAKE), record, Worker.ASLEEP, order="seq_cst")
        f.exchange("sub", team, counter, i32(1))
        since.set(0)


class Wait:
    """What one wait inside a run remembers."""

    def __init__(self, f: Function) -> None:
        self.since = f.variable("i64", 0)  # when it began to spin; 0: it has just slept
        self.watched = f.variable("i64", 0)  # since when the others are watched


def wait_in_run(
    f: Function, run: Value, record: Value, is_over: Callable[[], Value], wait: Wait
) -> None:
    """One pause of a wait inside a run. Worker 0 sleeps for a short while only, and then looks."""
    # The run's own word is the caller's, and 0 when a worker that came late gets here.
    team = f.load("ptr", record, Worker.TEAM)
    is_caller = f.eq(f.load("i64", record, Worker.INDEX), 0)
    look = f.select(f.eq(wait.watched.get(), 0), Team.FIRST_LOOK, Team.NEXT_LOOK)
    timeout = f.select(is_caller, f.at(team, look), Value("ptr", "null"))

    def over_or_error() -> Value:
        error = f.ne(f.load("i64", run, Run.ERROR, order="seq_cst"), 0)
        return f.or_(is_over(), error)

    look_again(f, team, record, Worker.IN_RUN, wait.since, over_or_error, timeout)
    with f.if_(is_caller):
        f.call("void", "poll", run)
        with f.if_(f.eq(wait.since.get(), 0)):
            n_threads = f.load("i64", run, Run.N_THREADS)
            wait.watched.set(f.call("i64", "watch", team, n_threads, wait.watched.get()))


def _is_done(f: Function, word: Value, epoch: Value) -> Value:
    """Complete in this epoch, or begun in a later one."""
    ahead = epochs_ahead(f, word, epoch)
    is_over = f.eq(f.and_(word, MAX_CLAIMS), 0)
    return f.or_(f.lt(0, ahead), f.and_(f.eq(ahead, 0), is_over))


def epochs_ahead(f: Function, word: Value, epoch: Value) -> Value:
    """How far the word's epoch is ahead, as a signed 32-bit difference."""
    of_word = f.convert("trunc", f.lshr(word, 32), "i32")
    return f.sub(of_word, f.convert("trunc", epoch, "i32"))


def wait_for(module: Module) -> None:
    """Wait for all launches an entry names; 0 where an error came first."""
    f = module.function("wait_for", "i64", run="ptr", entry="ptr", epoch="i64", worker="ptr")
    run = f["run"]
    syncs = f.load("ptr", run, Run.SYNCS)
    first = entry_field(f, f["entry"], "wait_start")
    waits = f.at(f.load("ptr", run, Run.WAITS), f.shl(first, 2))
    wait = Wait(f)
    with f.count(0, entry_field(f, f["entry"], "wait_count")) as index:
        number = f.convert("zext", f.load("i32", waits, f.shl(index, 2)), "i64")
        sync = f.at(syncs, f.shl(number, 6))
        with f.loop():
            word = f.load("i64", sync, order="acquire")
            with f.if_(_is_done(f, word, f["epoch"])):
                f.break_()
            with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="monotonic"), 0)):
                f.ret(0)

            def is_over(sync: Value = sync) -> Value:
                return _is_done(f, f.load("i64", sync, order="seq_cst"), f["epoch"])

            wait_in_run(f, run, f["worker"], is_over, wait)
    f.ret(1)

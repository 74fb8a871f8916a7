"""Waiting and waking in LLVM IR.

In: the module under construction. Out: functions in it. Who waits spins, then sleeps on a futex in
its own record. Who sleeps says so first and looks once more; who changes something looks for
sleepers afterwards; all of it sequentially consistent, so that no wake is lost and an awake team
costs no system call. A sleeper at the gate is not woken by what happens inside a run.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen.target import Target
from arenite.runtime.entry_ir import entry_field, i32, i64
from arenite.runtime.ir_text import Function, Module, Value, Variable
from arenite.runtime.layout import MAX_CLAIMS, Imports, Run, Team, Worker

_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129


def system_calls(module: Module, target: Target) -> None:
    """futex and sched_yield, through libc's `syscall`."""
    futex, sched_yield = (202, 24) if target.is_x86 else (98, 124)
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


def wakes(module: Module) -> None:
    """Wake those of the first `n` workers that sleep for this reason."""
    f = module.function("wake", "void", team="ptr", n="i64", reason="i32")
    at_gate = f.eq(f["reason"], Worker.AT_GATE)
    counter = f.select(at_gate, Team.SLEEPERS, Team.WAITERS)
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


def wait_in_run(
    f: Function, run: Value, record: Value, is_over: Callable[[], Value], since: Variable
) -> None:
    """One pause of a wait inside a run. Worker 0 sleeps for a poll's period at most."""
    team = f.load("ptr", run, Run.TEAM)
    is_caller = f.eq(f.load("i64", record, Worker.INDEX), 0)
    timeout = f.select(is_caller, f.at(run, Run.TIMEOUT), Value("ptr", "null"))

    def over_or_error() -> Value:
        error = f.ne(f.load("i64", run, Run.ERROR, order="seq_cst"), 0)
        return f.or_(is_over(), error)

    look_again(f, team, record, Worker.IN_RUN, since, over_or_error, timeout)
    with f.if_(is_caller):
        f.call("void", "poll", run)


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
    since = f.variable("i64", 0)
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

            wait_in_run(f, run, f["worker"], is_over, since)
    f.ret(1)

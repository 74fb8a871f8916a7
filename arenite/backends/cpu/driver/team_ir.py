"""The team in LLVM IR: blocks shared, tiles claimed, the worker's life.

In: the module under construction. Out: functions in it. One sync word a launch (`layout.Sync`) is
claim counter, completion flag and iteration number in one, so a worker that comes late or sleeps
through a block does no harm and is never waited for, not at the end of a run either: it may read
the run's memory for a while, and finds nothing to do. Only a run that failed waits for all. Where
there are more tiles than it can count, several are claimed together; while all workers but the
caller are away, it claims all that are left.

Half of the workers claim from the first tile on, the other half from the last: of launches that are
cut alike, and of one that runs again, a worker gets much the same tiles, whose bytes its cache has.
"""

from __future__ import annotations

from arenite.backends.cpu.driver.entry_ir import (
    call_kernel,
    entry_at,
    entry_field,
    i32,
    i64,
    spend,
    suffixed,
    tile_count,
)
from arenite.backends.cpu.driver.ir_text import Function, Module, Value, Variable
from arenite.backends.cpu.driver.layout import MAX_CLAIMS, Imports, Run, Sync, Team, Worker
from arenite.backends.cpu.driver.wait_ir import (
    Wait,
    come_back,
    epochs_ahead,
    look_again,
    rest,
    wait_in_run,
)
from arenite.program.table import Flag

#: A block whose estimate is below this does not wake workers that sleep; waking takes as long.
WAKE_FROM_NS = 50_000


def _note_error(f: Function, run: Value, worker: Value, tick: Value) -> None:
    """Hand on what a kernel has put into the worker's error word, with the entry as its site."""
    word = f.load("i64", worker, Worker.WORD)
    with f.if_(f.ne(word, 0)):
        f.store(i64(0), worker, Worker.WORD)
        named = f.or_(f.shl(tick, 32), word)
        f.call("void", "raise", run, f.select(f.eq(f.lshr(word, 32), 0), named, word))


def _wake_waiters(f: Function, team: Value, n_threads: Value) -> None:
    f.call("void", "wake", team, n_threads, i32(Worker.IN_RUN))


def _is_to_rest(f: Function, worker: Value) -> Value:
    return f.ne(f.load("i64", worker, Worker.REST_NS, order="monotonic"), 0)


def work(module: Module, profiled: bool) -> None:
    """What every worker does with the block at `tick`: its entries in order."""
    _shared(module, profiled)
    f = module.function(
        suffixed("work", profiled),
        "void",
        run="ptr",
        tick="i64",
        epoch="i64",
        worker="ptr",
    )
    run, worker_ = f["run"], f["worker"]
    block = entry_at(f, f.load("ptr", run, Run.TABLE), f["tick"])
    is_caller = f.eq(f.load("i64", worker_, Worker.INDEX), 0)
    with f.count(1, f.add(entry_field(f, block, "a"), 1)) as k:
        with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="monotonic"), 0)):
            f.ret()
        with f.if_(_is_to_rest(f, worker_)):
            f.ret()
        entry, tick = entry_at(f, block, k), f.add(f["tick"], k)
        is_shared = f.ne(f.and_(entry_field(f, entry, "flags"), int(Flag.SHARED)), 0)
        with f.if_(is_shared):
            f.call("void", suffixed("shared", profiled), run, entry, tick, f["epoch"], worker_)
        with f.if_(f.and_(is_caller, f.eq(is_shared, 0))):
            _solo(f, run, entry, tick, worker_, profiled)
    f.ret()


def _solo(
    f: Function, run: Value, entry: Value, tick: Value, worker_: Value, profiled: bool
) -> None:
    """Worker 0 runs a launch of a parallel block by itself."""
    with f.if_(f.eq(f.call("i64", "wait_for", run, entry, f["epoch"], worker_), 0)):
        f.ret()
    registers = f.load("ptr", run, Run.REGISTERS)
    n = tile_count(f, registers, entry)
    with f.if_(f.lt(0, n)):
        call_kernel(f, run, entry, tick, (i64(0), n), worker_, profiled)
        _note_error(f, run, worker_, tick)
    signals = f.ne(f.and_(entry_field(f, entry, "flags"), int(Flag.SIGNALS)), 0)
    with f.if_(signals):
        sync = _sync_of(f, run, entry)
        f.store(f.shl(f["epoch"], 32), sync, order="seq_cst")
        _wake_waiters(f, f.load("ptr", run, Run.TEAM), f.load("i64", run, Run.N_THREADS))
    spend(f, run, entry)


def _sync_of(f: Function, run: Value, entry: Value) -> Value:
    return f.at(f.load("ptr", run, Run.SYNCS), f.shl(entry_field(f, entry, "sync"), 6))


def _shared(module: Module, profiled: bool) -> None:
    """Claim tiles of a SHARED launch and run them, until none is left to claim."""
    f = module.function(
        suffixed("shared", profiled),
        "void",
        run="ptr",
        entry="ptr",
        tick="i64",
        epoch="i64",
        worker="ptr",
    )
    run, entry, worker_ = f["run"], f["entry"], f["worker"]
    # Who completes the last launch may get no further before the run is over.
    team = f.load("ptr", worker_, Worker.TEAM)
    n_threads = f.load("i64", run, Run.N_THREADS)
    sync = _sync_of(f, run, entry)
    epoch_bits = f.shl(f["epoch"], 32)
    word = f.variable("i64", f.load("i64", sync, order="acquire"))
    claim = f.variable("i64", 0)
    # Worker 0 goes upwards: where it is left alone, memory is read in the order it lies in.
    from_below = f.sub(1, f.and_(f.load("i64", worker_, Worker.INDEX), 1))
    one_below = f.shl(from_below, Sync.BELOW_SHIFT)
    # A profile shows the tiles.
    takes_all = Value("i1", "false")
    if not profiled:
        is_caller = f.eq(f.load("i64", worker_, Worker.INDEX), 0)
        takes_all = f.and_(is_caller, f.ne(f.load("i64", team, Team.ALONE, order="monotonic"), 0))
    n_claims = f.variable("i64", 1)
    with f.loop():
        seen = word.get()
        ahead = epochs_ahead(f, seen, f["epoch"])
        with f.if_(f.lt(0, ahead)):
            f.ret()  # a later block has begun: this one is complete
        with f.if_(f.lt(ahead, 0)):
            with f.if_(f.eq(f.call("i64", "wait_for", run, entry, f["epoch"], worker_), 0)):
                f.ret()
            # Tiles are counted only while the block can't be complete; and then downwards.
            n, together = _tiles_of(f, run, entry)
            n = f.sdiv(f.add(n, f.sub(together, 1)), together)
            is_empty = f.le(n, 0)
            n_claims.set(f.select(takes_all, n, 1))
            counts = f.or_(f.shl(f.sub(n, n_claims.get()), Sync.UNCLAIMED_SHIFT), n)
            begun = f.or_(epoch_bits, f.or_(f.mul(one_below, n_claims.get()), counts))
            fresh = f.select(is_empty, epoch_bits, begun)
            found, claimed = f.compare_exchange(sync, 0, seen, fresh)
            with f.if_(f.eq(claimed, 0)):
                word.set(found)
                f.continue_()
            with f.if_(is_empty):
                _complete(f, team, n_threads)
                f.ret()
            claim.set(f.select(f.ne(from_below, 0), 0, f.sub(n, 1)))
        with f.if_(f.eq(ahead, 0)):
            unclaimed = f.and_(f.lshr(seen, Sync.UNCLAIMED_SHIFT), MAX_CLAIMS)
            below = f.and_(f.lshr(seen, Sync.BELOW_SHIFT), MAX_CLAIMS)
            with f.if_(f.eq(unclaimed, 0)):
                f.ret()
            n_claims.set(f.select(takes_all, unclaimed, 1))
            fewer = f.sub(seen, f.shl(n_claims.get(), Sync.UNCLAIMED_SHIFT))
            fewer = f.add(fewer, f.mul(one_below, n_claims.get()))
            found, claimed = f.compare_exchange(sync, 0, seen, fewer)
            with f.if_(f.eq(claimed, 0)):
                word.set(found)
                f.continue_()
            last_one = f.sub(f.add(below, unclaimed), 1)
            claim.set(f.select(f.ne(from_below, 0), below, last_one))
        n, together = _tiles_of(f, run, entry)
        first = f.mul(claim.get(), together)
        last = f.add(first, f.mul(n_claims.get(), together))
        last = f.select(f.lt(last, n), last, n)
        call_kernel(f, run, entry, f["tick"], (first, last), worker_, profiled)
        _note_error(f, run, worker_, f["tick"])
        done = f.add(f.load("i64", worker_, Worker.N_TILES), f.sub(last, first))
        f.store(done, worker_, Worker.N_TILES)
        before = f.exchange("sub", sync, 0, n_claims.get())
        with f.if_(f.eq(f.and_(before, MAX_CLAIMS), n_claims.get())):
            _complete(f, team, n_threads)
            f.ret()
        with f.if_(_is_to_rest(f, worker_)):
            f.ret()
        word.set(f.sub(before, n_claims.get()))
        with f.if_(f.eq(f.load("i64", worker_, Worker.INDEX), 0)):
            f.call("void", "poll", run)
        with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="monotonic"), 0)):
            f.ret()


def _tiles_of(f: Function, run: Value, entry: Value) -> tuple[Value, Value]:
    """How many tiles a launch has, and how many of them are claimed together."""
    n = tile_count(f, f.load("ptr", run, Run.REGISTERS), entry)
    together = f.variable("i64", 1)
    with f.if_(f.lt(MAX_CLAIMS, n)):
        together.set(f.sdiv(f.add(n, MAX_CLAIMS - 1), MAX_CLAIMS))
    return n, together.get()


def _complete(f: Function, team: Value, n_threads: Value) -> None:
    f.exchange("add", team, Team.COMPLETED, i64(1))
    _wake_waiters(f, team, n_threads)


def parallel_block(
    f: Function, run: Value, entry: Value, tick: Value, is_open: Variable, profiled: bool
) -> None:
    """Worker 0: publish the block, work on it, wait until its SHARED launches are complete."""
    team = f.load("ptr", run, Run.TEAM)
    record = f.at(team, Team.WORKERS)
    _refresh(f, run, is_open)
    epoch32 = f.add(f.load("i32", run, Run.EPOCH), 1)
    f.store(epoch32, run, Run.EPOCH)
    epoch = f.convert("zext", epoch32, "i64")
    f.store(i64(0), team, Team.COMPLETED, order="monotonic")
    f.store(f.or_(f.shl(epoch, 32), tick), team, Team.BLOCK, order="release")
    n_threads = f.load("i64", run, Run.N_THREADS)
    with f.if_(f.eq(is_open.get(), 0)):
        now = f.call("i64", "clock")
        with f.if_(f.le(f.load("i64", team, Team.PLACE_AT), now)):
            f.call("void", "follow", team, now)
        f.store(run, team, Team.RUN)
        # Beside the words of the team, this thread's own: kernels get its record.
        f.store(f.at(record, Worker.WORD), record, Worker.ERROR)
        f.store(i64(0), record, Worker.WORD)
    raised = f.add(f.load("i64", team, Team.SEQ, order="monotonic"), 1)
    f.store(raised, team, Team.SEQ, order="seq_cst")
    with f.if_(f.eq(is_open.get(), 0)):
        _open_gate(f, team, n_threads)
        is_open.set(1)
    cost = entry_field(f, entry, "cost_ns")
    with f.if_(f.eq(f.below(f.sub(cost, 1), WAKE_FROM_NS), 0)):  # 0 says nothing: wake
        f.call("void", "wake", team, n_threads, i32(Worker.AT_GATE))
    alone = f.call("i64", "look_around", team, n_threads)
    with f.if_(f.ne(f.load("i64", team, Team.ALONE, order="monotonic"), alone)):
        f.store(alone, team, Team.ALONE, order="monotonic")
    f.call("void", suffixed("work", profiled), run, tick, epoch, record)
    wanted = entry_field(f, entry, "tiles")
    wait = Wait(f)

    def is_over() -> Value:
        completed = f.load("i64", team, Team.COMPLETED, order="seq_cst")
        return f.eq(completed, wanted)

    with f.loop():
        with f.if_(f.eq(f.load("i64", team, Team.COMPLETED, order="acquire"), wanted)):
            f.break_()
        with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="monotonic"), 0)):
            f.break_()
        wait_in_run(f, run, record, is_over, wait)


def follow(module: Module) -> None:
    """Worker 0: if it has been moved to the CPU of another, that gets the one it has left."""
    f = module.function("follow", "void", team="ptr", now="i64")
    team = f["team"]
    next_at = f.add(f["now"], f.load("i64", team, Team.PLACE_CLOCKS))
    f.store(next_at, team, Team.PLACE_AT)
    imports = f.load("ptr", team, Team.IMPORTS)
    here = f.convert("sext", f.call("i32", f.load("ptr", imports, Imports.GET_CPU)), "i64")
    own = f.at(team, Team.WORKERS)
    left = f.load("i64", own, Worker.CPU)
    with f.if_(f.or_(f.eq(here, left), f.lt(here, 0))):
        f.ret()
    f.store(here, own, Worker.CPU)
    # Best effort: a worker that is not pinned is slower, not wrong.
    with f.if_(f.eq(f.below(left, 8 * Team.CPU_SET_NBYTES), 0)):
        f.ret()
    word = f.at(team, f.add(f.shl(f.lshr(left, 6), 3), Team.CPU_SET))
    f.store(f.shl(1, f.and_(left, 63)), word)
    with f.count(1, f.load("i64", team, Team.N_THREADS)) as index:
        record = f.at(own, f.mul(index, Worker.NBYTES))
        with f.if_(f.eq(f.load("i64", record, Worker.CPU), here)):
            f.store(left, record, Worker.CPU)
            set_affinity = f.load("ptr", imports, Imports.SET_AFFINITY)
            thread, nbytes = f.load("i64", record, Worker.THREAD), i64(Team.CPU_SET_NBYTES)
            f.call("i32", set_affinity, thread, nbytes, f.at(team, Team.CPU_SET))
    f.store(i64(0), word)
    f.ret()


def _open_gate(f: Function, team: Value, n_threads: Value) -> None:
    """Let workers in, and tell this opening from those before; some may still be inside of one."""
    with f.loop():
        gate = f.load("i64", team, Team.GATE, order="monotonic")
        times = f.shl(f.add(f.lshr(gate, Team.OPENED_SHIFT), 1), Team.OPENED_SHIFT)
        invited = f.or_(f.shl(n_threads, Team.INVITED_SHIFT), Team.OPEN)
        opened = f.or_(f.or_(times, invited), f.and_(gate, Team.COUNT_MASK))
        _, stored = f.compare_exchange(team, Team.GATE, gate, opened)
        with f.if_(stored):
            f.break_()


def _refresh(f: Function, run: Value, is_open: Variable) -> None:
    """Before epochs could be taken for later ones: set all sync words to the current epoch."""
    epoch = f.load("i32", run, Run.EPOCH)
    age = f.sub(epoch, f.load("i32", run, Run.REFRESHED))
    with f.if_(f.eq(f.below(age, f.load("i32", run, Run.REFRESH_AFTER)), 0)):
        close_gate(f, run, is_open)
        syncs = f.load("ptr", run, Run.SYNCS)
        word = f.shl(f.convert("zext", epoch, "i64"), 32)
        with f.count(0, f.load("i64", run, Run.N_SYNCS)) as index:
            f.store(word, syncs, f.shl(index, 6), order="monotonic")
        f.store(epoch, run, Run.REFRESHED)


def close_gate(f: Function, run: Value, is_open: Variable) -> None:
    """Let nobody in any more. Who is inside has no tile, so memory is the caller's again; but after
    an error some may have, and it is waited until nobody is inside."""
    with f.if_(f.ne(is_open.get(), 0)):
        team = f.load("ptr", run, Run.TEAM)
        f.exchange("and", team, Team.GATE, i64(~Team.OPEN))
        is_open.set(0)
    with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="seq_cst"), 0)):
        team = f.load("ptr", run, Run.TEAM)
        imports = f.load("ptr", team, Team.IMPORTS)
        start = f.call("i64", "clock")
        with f.loop():
            gate = f.load("i64", team, Team.GATE, order="acquire")
            with f.if_(f.eq(f.and_(gate, Team.COUNT_MASK), 0)):
                f.break_()
            f.call("void", "pause")
            waited = f.sub(f.call("i64", "clock"), start)
            with f.if_(f.lt(f.load("i64", team, Team.YIELD_CLOCKS), waited)):
                f.call("void", "give_way", imports)


def worker(module: Module) -> None:
    """The life of a thread of the team: join runs while the gate is open, else spin, then sleep;
    rest when it is asked to."""
    f = module.function("worker", "ptr", exported=True, record="ptr")
    record = f["record"]
    team = f.load("ptr", record, Worker.TEAM)
    index = f.load("i64", record, Worker.INDEX)
    seen = f.variable("i64", 0)
    since = f.variable("i64", 0)
    f.store(f.at(record, Worker.WORD), record, Worker.ERROR)

    def is_invited(gate: Value) -> Value:
        """Open, with a place for this worker."""
        threads = f.and_(f.lshr(gate, Team.INVITED_SHIFT), Team.COUNT_MASK)
        return f.and_(f.ne(f.and_(gate, Team.OPEN), 0), f.lt(index, threads))

    def has_news() -> Value:
        gate = f.load("i64", team, Team.GATE, order="seq_cst")
        is_new = f.ne(f.load("i64", team, Team.SEQ, order="seq_cst"), seen.get())
        stops = f.ne(f.load("i64", team, Team.STOP, order="seq_cst"), 0)
        return f.or_(stops, f.and_(is_invited(gate), is_new))

    with f.loop():
        with f.if_(f.ne(f.load("i64", team, Team.STOP, order="acquire"), 0)):
            come_back(f, team, record)
            f.ret(Value("ptr", "null"))
        with f.if_(_is_to_rest(f, record)):
            rest(f, team, record)
            seen.set(0)  # what goes on may be the block that it left
            since.set(0)
            f.continue_()
        gate = f.load("i64", team, Team.GATE, order="acquire")
        is_new = f.ne(f.load("i64", team, Team.SEQ, order="acquire"), seen.get())
        with f.if_(f.and_(is_invited(gate), is_new)):
            with f.if_(f.ne(f.load("i32", record, Worker.AWAY), 0)):
                f.call("void", "try_cpu", team, record)
                f.continue_()
            _, joined = f.compare_exchange(team, Team.GATE, gate, f.add(gate, 1))
            with f.if_(joined):
                _inside(f, team, record, f.lshr(gate, Team.OPENED_SHIFT), seen, since)
                f.exchange("sub", team, Team.GATE, i64(1))
            f.continue_()
        look_again(f, team, record, Worker.AT_GATE, since, has_news, Value("ptr", "null"))


def _inside(
    f: Function, team: Value, record: Value, opening: Value, seen: Variable, since: Variable
) -> None:
    """Inside the run that the gate was opened for: work on each new block; leave when it closes, to
    sleep or to rest. The run is not waiting: what is read of the team is of this run as long as the
    gate, looked at afterwards, is open for it."""
    run = f.load("ptr", team, Team.RUN, order="acquire")

    def is_over() -> Value:
        gate = f.load("i64", team, Team.GATE, order="acquire")
        is_closed = f.eq(f.and_(gate, Team.OPEN), 0)
        return f.or_(is_closed, f.ne(f.lshr(gate, Team.OPENED_SHIFT), opening))

    is_profiled = f.variable("i1", 0)
    f.store(i64(0), record, Worker.WORD)
    with f.loop():
        with f.if_(f.or_(is_over(), _is_to_rest(f, record))):
            f.break_()
        seq = f.load("i64", team, Team.SEQ, order="acquire")
        with f.if_(f.ne(seq, seen.get())):
            block = f.load("i64", team, Team.BLOCK, order="acquire")
            is_profiled.set(f.eq(f.is_null(f.load("ptr", run, Run.STAMPS, order="monotonic")), 0))
            with f.if_(is_over()):
                f.break_()
            seen.set(seq)
            arguments = (run, f.and_(block, 0xFFFFFFFF), f.lshr(block, 32), record)
            with f.if_(is_profiled.get()):
                f.call("void", "work_profiled", *arguments)
            with f.if_(f.eq(is_profiled.get(), 0)):
                f.call("void", "work", *arguments)
            since.set(0)
            f.continue_()
        f.call("void", "pause")
        now = f.call("i64", "clock")
        with f.if_(f.eq(since.get(), 0)):
            since.set(now)
        with f.if_(f.lt(f.load("i64", team, Team.SPIN_CLOCKS), f.sub(now, since.get()))):
            f.break_()


def stop(module: Module) -> None:
    """Ask the first `n` workers to end."""
    f = module.function("stop", "void", exported=True, team="ptr", n="i64")
    f.store(i64(1), f["team"], Team.STOP, order="seq_cst")
    f.call("void", "wake", f["team"], f["n"], i32(Worker.AT_GATE))
    f.call("void", "wake", f["team"], f["n"], i32(Worker.RESTING))

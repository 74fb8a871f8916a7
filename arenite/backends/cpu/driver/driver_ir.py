"""The launch-table driver in LLVM IR: control, blocks run alone, polls.

In: a target. Out: the text of the runtime image's module (`runtime_module`). A run is entered with
the GIL held and left with it held. `run_serial` is for one thread, without any atomics between
launches; `run_parallel` shares blocks with the team (`team_ir`). Each exists a second time with
time stamps, so that the normal path has none. Memory is laid out as in `layout` and `table`.
"""

from __future__ import annotations

from arenite.backends.cpu.driver import guard_ir, quick_ir, team_ir, wait_ir
from arenite.backends.cpu.driver.entry_ir import (
    CLOCK_EVERY_NS,
    ENTRY_NS,
    call_kernel,
    entry_at,
    entry_field,
    i32,
    i64,
    register_at,
    spend,
    spend_ns,
    stamp,
    suffixed,
    tile_count,
)
from arenite.backends.cpu.driver.eval_ir import eval_function
from arenite.backends.cpu.driver.ir_text import Function, Module, Value
from arenite.backends.cpu.driver.layout import (
    CANCELLED,
    CANCELLED_WORD,
    END,
    ERROR,
    SEGMENT,
    Imports,
    Run,
    Worker,
)
from arenite.backends.cpu.target import Target
from arenite.program.table import NONE, Flag, Op


def runtime_module(target: Target) -> str:
    """The text of the whole runtime image."""
    module = Module()
    _machine(module, target)
    wait_ir.system_calls(module, target)
    stamp(module)
    wait_ir.watch(module)
    wait_ir.try_cpu(module)
    wait_ir.look_around(module)
    wait_ir.wakes(module)
    team_ir.follow(module)
    _raise(module)
    _poll(module)
    wait_ir.wait_for(module)
    eval_function(module)
    for profiled in (False, True):
        _serial_block(module, profiled)
        team_ir.work(module, profiled)
        for parallel in (False, True):
            _run(module, parallel, profiled)
    _cancel(module)
    quick_ir.quick(module)
    guard_ir.bus_error(module, target)
    team_ir.worker(module)
    team_ir.stop(module)
    return module.text()


def _machine(module: Module, target: Target) -> None:
    """The clock, and the pause between two looks at a word."""
    now = module.function("clock", "i64", exported=True)
    pause = module.function("pause", "void")
    if target.is_x86:
        module.declare("i64 @llvm.readcyclecounter()")
        module.declare("void @llvm.x86.sse2.pause()")
        now.ret(now.call("i64", "llvm.readcyclecounter"))
        pause.call("void", "llvm.x86.sse2.pause")
    else:
        module.declare("i64 @llvm.read_volatile_register.i64(metadata)")
        module.declare("void @llvm.aarch64.hint(i32)")
        register = Value("metadata", '!{!"cntvct_el0"}')
        now.ret(now.call("i64", "llvm.read_volatile_register.i64", register))
        pause.call("void", "llvm.aarch64.hint", i32(1))


def _raise(module: Module) -> None:
    """Set the run's error, if it is the first, and wake whoever sleeps inside the run."""
    f = module.function("raise", "void", run="ptr", word="i64")
    f.compare_exchange(f["run"], Run.ERROR, i64(0), f["word"])
    team = f.load("ptr", f["run"], Run.TEAM)
    with f.if_(f.is_null(team)):
        f.ret()
    f.call("void", "wake", team, f.load("i64", f["run"], Run.N_THREADS), i32(Worker.IN_RUN))


def _cancel(module: Module) -> None:
    f = module.function("cancel", "void", exported=True, run="ptr")
    f.call("void", "raise", f["run"], i64(CANCELLED_WORD))


def _poll(module: Module) -> None:
    """Worker 0: when the period is over, take the GIL and let Python look for signals."""
    f = module.function("poll", "void", run="ptr")
    run = f["run"]
    f.store(i64(CLOCK_EVERY_NS), run, Run.BUDGET_NS)
    now = f.call("i64", "clock")
    with f.if_(f.lt(f.sub(now, f.load("i64", run, Run.NEXT_POLL)), 0)):
        f.ret()
    with f.if_(f.ne(f.load("i32", run, Run.INTERRUPTED), 0)):
        f.ret()
    f.store(f.add(f.load("i64", run, Run.N_POLLS), 1), run, Run.N_POLLS)
    imports = f.load("ptr", run, Run.IMPORTS)
    gave_gil = f.eq(f.load("i64", run, Run.KEEP_GIL), 0)
    with f.if_(gave_gil):
        state = f.load("ptr", run, Run.THREAD_STATE)
        f.call("void", f.load("ptr", imports, Imports.RESTORE_THREAD), state)
    failed = f.ne(f.call("i32", f.load("ptr", imports, Imports.CHECK_SIGNALS)), 0)
    with f.if_(failed):
        # The exception is set, so the GIL is kept until the run has been left.
        f.store(i32(1), run, Run.INTERRUPTED)
        f.call("void", "raise", run, i64(CANCELLED_WORD))
        f.ret()
    with f.if_(gave_gil):
        state = f.call("ptr", f.load("ptr", imports, Imports.SAVE_THREAD))
        f.store(state, run, Run.THREAD_STATE)
    _set_next_poll(f, run)


def _set_next_poll(f: Function, run: Value) -> None:
    due = f.add(f.call("i64", "clock"), f.load("i64", run, Run.POLL_CLOCKS))
    f.store(due, run, Run.NEXT_POLL)


def _serial_block(module: Module, profiled: bool) -> None:
    """All entries of the block at `tick`, in order, by worker 0 alone; ends early on an error."""
    f = module.function(suffixed("serial_block", profiled), "void", run="ptr", tick="i64")
    run = f["run"]
    registers = f.load("ptr", run, Run.REGISTERS)
    worker = f.at(run, Run.WORKER)
    block = entry_at(f, f.load("ptr", run, Run.TABLE), f["tick"])
    count = f.add(entry_field(f, block, "a"), 1)
    with f.count(1, count) as k:
        entry = entry_at(f, block, k)
        n = tile_count(f, registers, entry)
        with f.if_(f.lt(0, n)):
            tick = f.add(f["tick"], k)
            call_kernel(f, run, entry, tick, (i64(0), n), worker, profiled)
        error = f.load("i64", run, Run.ERROR, order="monotonic")
        with f.if_(f.ne(error, 0)):
            # A kernel gives its code; which entry it was is known here.
            with f.if_(f.eq(f.lshr(error, 32), 0)):
                site = f.shl(f.add(f["tick"], k), 32)
                f.store(f.or_(site, error), run, Run.ERROR, order="monotonic")
            f.ret()
        spend(f, run, entry)


def _run(module: Module, parallel: bool, profiled: bool) -> None:
    """Walk the table from `resume` on. Returns END, SEGMENT, ERROR or CANCELLED."""
    name = suffixed("run_parallel" if parallel else "run_serial", profiled)
    f = module.function(name, "i64", exported=True, run="ptr")
    run = f["run"]
    resume = f.convert("zext", f.load("i32", run, Run.RESUME), "i64")
    with f.if_(f.eq(resume, 0)):
        f.store(i64(0), run, Run.ERROR, order="monotonic")
    f.store(i32(0), run, Run.INTERRUPTED)
    f.store(i64(CLOCK_EVERY_NS), run, Run.BUDGET_NS)
    _set_next_poll(f, run)
    imports = f.load("ptr", run, Run.IMPORTS)
    gives_gil = f.eq(f.load("i64", run, Run.KEEP_GIL), 0)
    with f.if_(gives_gil):
        state = f.call("ptr", f.load("ptr", imports, Imports.SAVE_THREAD))
        f.store(state, run, Run.THREAD_STATE)
    registers = f.load("ptr", run, Run.REGISTERS)
    table = f.load("ptr", run, Run.TABLE)
    pc = f.variable("i64", resume)
    is_open = f.variable("i64", 0)
    result = f.variable("i64", END)
    resume_at = f.variable("i64", 0)
    bind_first = f.convert("zext", f.load("i32", run, Run.BIND_FIRST), "i64")
    bind_count = f.convert("zext", f.load("i32", run, Run.BIND_COUNT), "i64")
    with f.if_(f.ne(bind_count, 0)):
        f.call("void", "eval", run, bind_first, bind_count)

    def value(entry: Value, field: str) -> Value:
        return f.load("i64", register_at(f, registers, entry_field(f, entry, field)))

    def goes_on(entry: Value, counter: Value) -> Value:
        """counter < trips and the condition, where there is one."""
        answer = f.variable("i1", f.lt(counter, value(entry, "b")))
        condition = entry_field(f, entry, "c")
        with f.if_(f.ne(condition, NONE)):
            holds = f.ne(f.load("i64", register_at(f, registers, condition)), 0)
            answer.set(f.and_(answer.get(), holds))
        return answer.get()

    with f.loop():
        with f.if_(f.ne(f.load("i64", run, Run.ERROR, order="monotonic"), 0)):
            f.break_()
        tick = pc.get()
        entry = entry_at(f, table, tick)
        after = f.add(tick, 1)
        op = entry_field(f, entry, "op")
        with f.if_(f.eq(op, int(Op.BLOCK))):
            if parallel:
                flags = entry_field(f, entry, "flags")
                shares = f.ne(f.and_(flags, int(Flag.PARALLEL)), 0)
                with f.if_(shares):
                    team_ir.parallel_block(f, run, entry, tick, is_open, profiled)
                with f.if_(f.eq(f.and_(flags, int(Flag.PARALLEL)), 0)):
                    f.call("void", suffixed("serial_block", profiled), run, tick)
            else:
                f.call("void", suffixed("serial_block", profiled), run, tick)
            pc.set(f.add(after, entry_field(f, entry, "a")))
            f.continue_()
        with f.if_(f.eq(op, int(Op.EVAL))):
            first, count = entry_field(f, entry, "a"), entry_field(f, entry, "b")
            f.call("void", "eval", run, first, count)
            pc.set(after)
            f.continue_()
        with f.if_(f.eq(op, int(Op.NEXT))):
            place = register_at(f, registers, entry_field(f, entry, "a"))
            counter = f.add(f.load("i64", place), 1)
            f.store(counter, place)
            spend_ns(f, run, ENTRY_NS)
            pc.set(f.select(goes_on(entry, counter), entry_field(f, entry, "target"), after))
            f.continue_()
        with f.if_(f.eq(op, int(Op.LOOP))):
            place = register_at(f, registers, entry_field(f, entry, "a"))
            f.store(i64(0), place)
            enters = goes_on(entry, i64(0))
            pc.set(f.select(enters, after, entry_field(f, entry, "target")))
            f.continue_()
        with f.if_(f.eq(op, int(Op.IF))):
            holds = f.ne(value(entry, "a"), 0)
            pc.set(f.select(holds, after, entry_field(f, entry, "target")))
            f.continue_()
        with f.if_(f.eq(op, int(Op.JUMP))):
            pc.set(entry_field(f, entry, "target"))
            f.continue_()
        with f.if_(f.eq(op, int(Op.SEGMENT))):
            result.set(SEGMENT)
            resume_at.set(after)
            f.store(f.convert("trunc", tick, "i32"), run, Run.SEGMENT)
            f.break_()
        f.break_()  # END
    if parallel:
        team_ir.close_gate(f, run, is_open)
    error = f.load("i64", run, Run.ERROR, order="monotonic")
    with f.if_(f.ne(error, 0)):
        result.set(f.select(f.eq(error, CANCELLED_WORD), CANCELLED, ERROR))
        resume_at.set(0)
    f.store(f.convert("trunc", resume_at.get(), "i32"), run, Run.RESUME)
    with f.if_(f.and_(gives_gil, f.eq(f.load("i32", run, Run.INTERRUPTED), 0))):
        state = f.load("ptr", run, Run.THREAD_STATE)
        f.call("void", f.load("ptr", imports, Imports.RESTORE_THREAD), state)
    f.ret(result.get())

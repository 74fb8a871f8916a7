"""The handler of SIGBUS in LLVM IR: what a run does where a mapped file has no bytes any more.

In: the module under construction. Out: `bus_error` in it, the handler that `file_guard` installs.
Where a file that a run is reading was cut short, its pages are replaced by zeros, to the end of the
mapping, and counted; the run goes on, and what it computed is thrown away by whoever started it.
Any other fault is left to the handler that was there before. Only what is safe in a handler is
called: system calls, `sigaction` and `raise`.
"""

from __future__ import annotations

from arenite.backends.cpu.driver.entry_ir import i64
from arenite.backends.cpu.driver.ir_text import Module, Value
from arenite.backends.cpu.driver.layout import Guard
from arenite.backends.cpu.target import Target

#: In the system's record of a signal.
_CODE, _ADDRESS = 8, 16
#: The code of a signal that a thread sent to itself; those of faults are positive.
_SENT_BY_THREAD = -6
_PROT_READ, _FIXED_ANONYMOUS = 1, 0x32  # MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS


def bus_error(module: Module, target: Target) -> None:
    """A handler as `sigaction` calls it, with the table of guarded files as a fourth argument."""
    f = module.function(
        "bus_error",
        "void",
        exported=True,
        signal="i32",
        info="ptr",
        context="ptr",
        table="ptr",
    )
    table = f["table"]
    code = f.load("i32", f["info"], _CODE)
    n_records = f.load("i64", table, Guard.N_RECORDS, order="seq_cst")
    is_fault = f.lt(0, code)
    address = f.load("i64", f["info"], _ADDRESS)
    with f.count(0, n_records) as k:
        record = f.at(table, f.add(f.mul(k, Guard.RECORD_NBYTES), Guard.RECORDS))
        with f.if_(f.ne(f.load("i64", record, Guard.ACTIVE, order="seq_cst"), 0)):
            with f.if_(f.eq(code, _SENT_BY_THREAD)):
                # Another handler, installed over this one, has passed on what it did not take: the
                # fault itself comes again when it returns.
                f.ret()
            start, end = f.load("i64", record, Guard.START), f.load("i64", record, Guard.END)
            is_inside = f.below(f.sub(address, start), f.sub(end, start))
            with f.if_(f.and_(is_fault, is_inside)):
                page = f.and_(address, f.load("i64", table, Guard.PAGE_MASK))
                made = f.call(
                    "i64",
                    f.load("ptr", table, Guard.SYSCALL),
                    *(i64(9 if target.is_x86 else 222), page, f.sub(end, page)),  # mmap
                    *(i64(_PROT_READ), i64(_FIXED_ANONYMOUS), i64(-1), i64(0)),
                )
                with f.if_(f.eq(made, page)):
                    f.exchange("add", record, Guard.FAULTS, i64(1))
                    f.ret()
    # Handlers that pass signals on to each other must not do so for ever.
    n_passed = f.exchange("add", table, Guard.N_PASSED, i64(1))
    action = f.at(table, f.select(f.eq(n_passed, 0), Guard.BEFORE, Guard.DEFAULT))
    restore = f.load("ptr", table, Guard.SIGACTION)
    f.call("i32", restore, f["signal"], action, Value("ptr", "null"))
    with f.if_(f.eq(is_fault, 0)):  # a fault comes again by itself
        f.call("i32", f.load("ptr", table, Guard.RAISE), f["signal"])

"""The quick entry in LLVM IR: a builtin function of Python that takes arrays and runs a table.

In: the module under construction. Out: `quick` in it, in the manner of METH_FASTCALL. The object it
belongs to is an array of words that say what each array must be like and where its address goes
(`layout.Quick`). What fits is read off the array objects. Arrays that are written may be anyone's:
they must be writeable, and share no byte with another.
"""

from __future__ import annotations

from arenite.backends.cpu.driver.entry_ir import i64
from arenite.backends.cpu.driver.ir_text import Function, Module, Value
from arenite.backends.cpu.driver.layout import NOT_FITTING, ArrayObject, Imports, Quick, Run


def quick(module: Module) -> None:
    """What the run returned, as a Python integer; NOT_FITTING, before anything has been run."""
    f = module.function(
        "quick", "ptr", exported=True, own="ptr", arguments="ptr", n_arguments="i64"
    )
    wanted = f.load("ptr", f["own"], ArrayObject.DATA)
    imports = f.load("ptr", wanted, Quick.IMPORTS)
    type_ = f.load("i64", wanted, Quick.TYPE)

    def must_be(condition: Value) -> None:
        with f.if_(f.eq(condition, 0)):
            f.ret(_integer(f, imports, i64(NOT_FITTING)))

    must_be(f.eq(f["n_arguments"], f.load("i64", wanted, Quick.N_ARRAYS)))
    n_inputs = f.load("i64", wanted, Quick.N_INPUTS)
    sizes = f.at(wanted, Quick.SIZES)
    spec_at = f.variable("ptr", f.at(sizes, f.shl(f["n_arguments"], 3)))

    def span(k: Value) -> tuple[Value, Value]:
        """The addresses of an array, from the first to the one behind the last."""
        array = f.load("ptr", f["arguments"], f.shl(k, 3))
        first = f.load("i64", array, ArrayObject.DATA)
        return first, f.add(first, f.load("i64", sizes, f.shl(k, 3)))

    with f.count(0, f["n_arguments"]) as k:
        array, spec = f.load("ptr", f["arguments"], f.shl(k, 3)), spec_at.get()
        must_be(f.eq(f.load("i64", array, ArrayObject.TYPE), type_))
        dtype = f.load("i64", spec, Quick.DTYPE)
        must_be(f.eq(f.load("i64", array, ArrayObject.DTYPE), dtype))
        flags = f.load("i32", array, ArrayObject.FLAGS)
        must_be(f.eq(f.and_(flags, ArrayObject.IN_ORDER), ArrayObject.IN_ORDER))
        rank = f.load("i64", spec, Quick.RANK)
        must_be(f.eq(f.convert("zext", f.load("i32", array, ArrayObject.RANK), "i64"), rank))
        shape = f.load("ptr", array, ArrayObject.SHAPE)
        with f.count(0, rank) as axis:
            size = f.load("i64", f.at(spec, f.shl(axis, 3)), Quick.SHAPE)
            must_be(f.eq(f.load("i64", shape, f.shl(axis, 3)), size))
        with f.if_(f.le(n_inputs, k)):
            must_be(f.ne(f.and_(flags, ArrayObject.WRITEABLE), 0))
            first, end = span(k)
            with f.count(0, k) as other:
                other_first, other_end = span(other)
                must_be(f.or_(f.le(end, other_first), f.le(other_end, first)))
        f.store(f.load("i64", array, ArrayObject.DATA), f.load("ptr", spec, Quick.TARGET))
        spec_at.set(f.at(spec, f.add(f.shl(rank, 3), Quick.SHAPE)))
    run = f.load("ptr", wanted, Quick.RUN)
    f.store(f.load("i64", wanted, Quick.N_THREADS), run, Run.N_THREADS)
    f.store(f.load("i64", wanted, Quick.TEAM), run, Run.TEAM)
    returned = f.call("i64", f.load("ptr", wanted, Quick.ENTRY), run)
    f.store(i64(0), run, Run.TEAM)
    # A signal's handler may have raised.
    raised = f.call("ptr", f.load("ptr", imports, Imports.ERROR_OCCURRED))
    with f.if_(f.eq(f.is_null(raised), 0)):
        f.ret(Value("ptr", "null"))
    f.ret(_integer(f, imports, returned))


def _integer(f: Function, imports: Value, value: Value) -> Value:
    return f.call("ptr", f.load("ptr", imports, Imports.NEW_INTEGER), value)

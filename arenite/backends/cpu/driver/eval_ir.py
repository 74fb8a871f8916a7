"""The interpreter of instructions in LLVM IR: three addresses, one switch, nothing that traps."""

from __future__ import annotations

from arenite.backends.cpu.driver.entry_ir import register_at
from arenite.backends.cpu.driver.ir_text import Function, Module, Value
from arenite.backends.cpu.driver.layout import Run
from arenite.program.table import INSTRUCTION, Ins


def eval_function(module: Module) -> None:
    """Run `count` instructions from `first` on."""
    f = module.function("eval", "void", run="ptr", first="i64", count="i64")
    registers = f.load("ptr", f["run"], Run.REGISTERS)
    code = f.load("ptr", f["run"], Run.INSTRUCTIONS)
    assert INSTRUCTION.fields is not None
    offsets = {name: int(INSTRUCTION.fields[name][1]) for name in ("op", "dst", "a", "b")}
    with f.count(f["first"], f.add(f["first"], f["count"])) as index:
        instruction = f.at(code, f.mul(index, INSTRUCTION.itemsize))

        def place(name: str, instruction: Value = instruction) -> Value:
            number = f.load("i32", instruction, offsets[name])
            return register_at(f, registers, f.convert("zext", number, "i64"))

        target = place("dst")
        a, b = f.load("i64", place("a")), f.load("i64", place("b"))
        labels = {ins: f.new_label(ins.name.lower()) for ins in Ins}
        cases = {int(ins): label for ins, label in labels.items()}
        with f.switch(f.load("i32", instruction, offsets["op"]), cases):
            for ins, label in labels.items():
                with f.case(label):
                    result = _instruction(f, ins, instruction, a, b)
                    if result is not None:
                        f.store(result, target)


def _instruction(f: Function, ins: Ins, instruction: Value, a: Value, b: Value) -> Value | None:
    """The value an instruction gives its register, or None where it has done its work."""
    address = f.convert("inttoptr", f.add(a, b), "ptr")
    if ins is Ins.CHECK:
        with f.if_(f.eq(a, 0)):
            site = f.convert("zext", f.load("i32", instruction, 4), "i64")
            code = f.and_(b, 0xFFFFFFFF)
            code = f.select(f.eq(code, 0), 1, code)
            f.call("void", "raise", f["run"], f.or_(f.shl(site, 32), code))
        return None
    if ins is Ins.STORE64:
        f.store(b, f.convert("inttoptr", a, "ptr"))
        return None
    if ins is Ins.SELECT:
        number = f.convert("zext", f.load("i32", instruction, 4), "i64")
        registers = f.load("ptr", f["run"], Run.REGISTERS)
        return f.select(f.ne(a, 0), b, f.load("i64", register_at(f, registers, number)))
    if ins in (Ins.DIV, Ins.CEILDIV, Ins.MOD):
        return _division(f, ins, a, b)
    if ins in (Ins.LOAD8, Ins.LOAD32):
        how, type_ = ("zext", "i8") if ins is Ins.LOAD8 else ("sext", "i32")
        raw = f.op(type_, f"load {type_}, ptr {address.text}, align 1")
        return f.convert(how, raw, "i64")
    if ins is Ins.LOAD64:
        return f.op("i64", f"load i64, ptr {address.text}, align 1")
    if ins in (Ins.AND, Ins.OR):
        truths = (f.ne(a, 0), f.ne(b, 0))
        both = f.and_(*truths) if ins is Ins.AND else f.or_(*truths)
        return f.convert("zext", both, "i64")
    compare = {Ins.LT: f.lt, Ins.LE: f.le, Ins.EQ: f.eq, Ins.NE: f.ne}
    if ins in compare:
        return f.convert("zext", compare[ins](a, b), "i64")
    if ins is Ins.NOT:
        return f.convert("zext", f.eq(a, 0), "i64")
    if ins is Ins.MIN:
        return f.select(f.lt(a, b), a, b)
    if ins is Ins.MAX:
        return f.select(f.lt(a, b), b, a)
    return {Ins.MOV: lambda: a, Ins.ADD: lambda: f.add(a, b), Ins.SUB: lambda: f.sub(a, b)}.get(
        ins, lambda: f.mul(a, b)
    )()


def _division(f: Function, ins: Ins, a: Value, b: Value) -> Value:
    """Rounded down or up, or the rest; 0 where the divisor is zero or below."""
    positive = f.lt(0, b)
    divisor = f.select(positive, b, 1)
    quotient = f.sdiv(a, divisor)
    rest = f.sub(a, f.mul(quotient, divisor))
    if ins is Ins.DIV:
        result = f.sub(quotient, f.convert("zext", f.lt(rest, 0), "i64"))
    elif ins is Ins.CEILDIV:
        result = f.add(quotient, f.convert("zext", f.lt(0, rest), "i64"))
    else:
        result = f.select(f.lt(rest, 0), f.add(rest, divisor), rest)
    return f.select(positive, result, 0)

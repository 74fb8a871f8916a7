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
                    result = _instruction(f, ins, a, b)
                    if result is not None:
                        f.store(result, target)


def _instruction(f: Function, ins: Ins, a: Value, b: Value) -> Value | None:
    """The value an instruction gives its register, or None where it has done its work."""
    match ins:
        case Ins.MOV:
            return a
        case Ins.ADD:
            return f.add(a, b)
        case Ins.SUB:
            return f.sub(a, b)
        case Ins.MUL:
            return f.mul(a, b)
        case Ins.DIV:
            return _quotient(f, a, b)
        case Ins.MIN:
            return f.select(f.lt(a, b), a, b)
        case Ins.MAX:
            return f.select(f.lt(a, b), b, a)
        case Ins.LOAD8 | Ins.LOAD64:
            type_ = "i8" if ins is Ins.LOAD8 else "i64"
            address = f.convert("inttoptr", f.add(a, b), "ptr")
            raw = f.op(type_, f"load {type_}, ptr {address.text}, align 1")
            return raw if ins is Ins.LOAD64 else f.convert("zext", raw, "i64")
        case Ins.STORE64:
            f.store(b, f.convert("inttoptr", a, "ptr"))
            return None


def _quotient(f: Function, a: Value, b: Value) -> Value:
    """Rounded down; 0 where the divisor is zero or below."""
    positive = f.lt(0, b)
    divisor = f.select(positive, b, 1)
    quotient = f.sdiv(a, divisor)
    rest = f.sub(a, f.mul(quotient, divisor))
    below = f.sub(quotient, f.convert("zext", f.lt(rest, 0), "i64"))
    return f.select(positive, below, 0)

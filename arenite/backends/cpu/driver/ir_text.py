"""LLVM IR as text, written with structured control flow.

In: Python that reads like the C it stands for. Out: the text of a module. Variables are stack slots
which LLVM's SROA turns into registers; blocks and labels are made here. Only what the runtime image
needs is here: integers, pointers, atomics, calls; no vectors, no floats.

    f = module.function("count", "i64", n="i64")
    total = f.variable("i64", 0)
    with f.loop():
        with f.if_(f.eq(total.get(), f["n"])):
            f.ret(total.get())
        total.set(f.add(total.get(), 1))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arenite.backends.cpu.identity import FUNCTION_ATTRIBUTES


@dataclass(frozen=True)
class Value:
    type: str
    text: str


Operand = Value | int


class Variable:
    """A place whose value changes."""

    def __init__(self, function: Function, type_: str, address: Value) -> None:
        self._function = function
        self._type = type_
        self._address = address

    def get(self) -> Value:
        return self._function.load(self._type, self._address)

    def set(self, value: Operand) -> None:
        self._function.store(self._function.as_type(value, self._type), self._address)


class Module:
    """Functions and the declarations they need."""

    def __init__(self) -> None:
        self._functions: list[Function] = []
        self._declarations: dict[str, None] = {}

    def function(self, name: str, returns: str, exported: bool = False, **params: str) -> Function:
        made = Function(name, returns, exported, params)
        self._functions.append(made)
        return made

    def declare(self, declaration: str) -> None:
        self._declarations[f"declare {declaration}"] = None

    def text(self) -> str:
        return "\n".join([*self._declarations, *(f.text() for f in self._functions), ""])


def _alike(a: Operand, b: Operand) -> tuple[str, str, str]:
    """The type of two operands, one of which may be a plain number, and their texts."""
    type_ = next((one.type for one in (a, b) if isinstance(one, Value)), "i64")
    x, y = (str(one) if isinstance(one, int) else one.text for one in (a, b))
    return type_, x, y


def _binary(operation: str) -> Callable[[Function, Operand, Operand], Value]:
    def emit(function: Function, a: Operand, b: Operand) -> Value:
        type_, x, y = _alike(a, b)
        result = "i1" if operation.startswith("icmp") else type_
        return function.op(result, f"{operation} {type_} {x}, {y}")

    return emit


class Function:
    """One function under construction: each method appends to its text."""

    def __init__(self, name: str, returns: str, exported: bool, params: dict[str, str]) -> None:
        self._name = name
        self._returns = returns
        self._exported = exported
        self._params = params
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._n_names = 0
        self._loops: list[tuple[str, str]] = []  # labels of (next round, after)
        self._is_open = True  # whether the current block still lacks its end

    def __getitem__(self, parameter: str) -> Value:
        return Value(self._params[parameter], f"%{parameter}")

    def text(self) -> str:
        params = ", ".join(f"{type_} %{name}" for name, type_ in self._params.items())
        linkage = "hidden" if self._exported else "internal"
        if self._is_open:
            self._lines.append("ret void" if self._returns == "void" else "unreachable")
        body = "\n".join([*self._slots, *self._lines])
        head = f"define {linkage} {self._returns} @{self._name}({params}) {FUNCTION_ATTRIBUTES}"
        return f"{head} {{\n{body}\n}}"

    # Values

    def as_type(self, value: Operand, type_: str) -> Value:
        return Value(type_, str(value)) if isinstance(value, int) else value

    def variable(self, type_: str, initial: Operand) -> Variable:
        name = self._new_name()
        self._slots.append(f"{name} = alloca {type_}")
        variable = Variable(self, type_, Value("ptr", name))
        variable.set(initial)
        return variable

    def op(self, type_: str, text: str) -> Value:
        name = self._new_name()
        self._emit(f"{name} = {text}")
        return Value(type_, name)

    add, sub, mul, sdiv = _binary("add"), _binary("sub"), _binary("mul"), _binary("sdiv")
    and_, or_, shl, lshr = _binary("and"), _binary("or"), _binary("shl"), _binary("lshr")
    eq, ne = _binary("icmp eq"), _binary("icmp ne")
    lt, le = _binary("icmp slt"), _binary("icmp sle")
    below = _binary("icmp ult")  # of unsigned numbers

    def is_null(self, a: Value) -> Value:
        return self.op("i1", f"icmp eq ptr {a.text}, null")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        type_, x, y = _alike(a, b)
        return self.op(type_, f"select i1 {condition.text}, {type_} {x}, {type_} {y}")

    def convert(self, how: str, value: Value, type_: str) -> Value:
        """`how`: zext, sext, trunc, inttoptr, ptrtoint."""
        return self.op(type_, f"{how} {value.type} {value.text} to {type_}")

    # Memory

    def at(self, base: Value, offset: Operand) -> Value:
        """The address `offset` bytes after `base`."""
        by = self.as_type(offset, "i64")
        return self.op("ptr", f"getelementptr i8, ptr {base.text}, {by.type} {by.text}")

    def load(self, type_: str, base: Value, offset: Operand = 0, order: str = "") -> Value:
        address = base if offset == 0 else self.at(base, offset)
        if order:
            nbytes = {"i32": 4, "i64": 8, "ptr": 8}[type_]
            text = f"load atomic {type_}, ptr {address.text} {order}, align {nbytes}"
            return self.op(type_, text)
        return self.op(type_, f"load {type_}, ptr {address.text}")

    def store(self, value: Value, base: Value, offset: Operand = 0, order: str = "") -> None:
        address = base if offset == 0 else self.at(base, offset)
        if order:
            nbytes = {"i32": 4, "i64": 8, "ptr": 8}[value.type]
            tail = f", ptr {address.text} {order}, align {nbytes}"
            self._emit(f"store atomic {value.type} {value.text}{tail}")
        else:
            # Vectors go to memory of callers, which need not be aligned for them.
            align = ", align 1" if value.type.startswith("<") else ""
            self._emit(f"store {value.type} {value.text}, ptr {address.text}{align}")

    def exchange(self, operation: str, base: Value, offset: Operand, value: Value) -> Value:
        """Atomically replace by `operation` (add, sub, and, xchg); returns what was there."""
        address = self.at(base, offset)
        text = f"atomicrmw {operation} ptr {address.text}, {value.type} {value.text} seq_cst"
        return self.op(value.type, text)

    def compare_exchange(
        self, base: Value, offset: Operand, expected: Value, new: Value
    ) -> tuple[Value, Value]:
        """(what was there, whether it was `expected` and `new` was stored)."""
        address = self.at(base, offset)
        pair = self.op(
            f"{{ {new.type}, i1 }}",
            f"cmpxchg ptr {address.text}, {new.type} {expected.text}, "
            f"{new.type} {new.text} seq_cst seq_cst",
        )
        found = self.op(new.type, f"extractvalue {pair.type} {pair.text}, 0")
        return found, self.op("i1", f"extractvalue {pair.type} {pair.text}, 1")

    def call(self, returns: str, callee: str | Value, *arguments: Value) -> Value:
        name = f"@{callee}" if isinstance(callee, str) else callee.text
        given = ", ".join(f"{a.type} {a.text}" for a in arguments)
        text = f"call {returns} {name}({given})"
        if returns == "void":
            self._emit(text)
            return Value("void", "")
        return self.op(returns, text)

    # Control

    @contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        inside, after = self.new_label("then"), self.new_label("after")
        self._end(f"br i1 {condition.text}, label %{inside}, label %{after}", inside)
        yield
        self._end(f"br label %{after}", after)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """For ever; left by `break_` or `ret`."""
        inside, after = self.new_label("loop"), self.new_label("after")
        self._end(f"br label %{inside}", inside)
        self._loops.append((inside, after))
        yield
        self._loops.pop()
        self._end(f"br label %{inside}", after)

    @contextmanager
    def count(self, start: Operand, stop: Value) -> Iterator[Value]:
        """For each i64 in [start, stop); `continue_` would not count."""
        counter = self.variable("i64", start)
        with self.loop():
            now = counter.get()
            with self.if_(self.le(stop, now)):
                self.break_()
            yield now
            counter.set(self.add(now, 1))

    @contextmanager
    def switch(self, value: Value, cases: dict[int, str]) -> Iterator[None]:
        """Jump to the label of the case; within, `case` begins each; none is a jump past all."""
        after = self.new_label("after")
        table = " ".join(f"{value.type} {n}, label %{label}" for n, label in cases.items())
        self._emit(f"switch {value.type} {value.text}, label %{after} [ {table} ]")
        self._is_open = False
        self._loops.append(("", after))
        yield
        self._loops.pop()
        self._end(f"br label %{after}", after)

    @contextmanager
    def case(self, label: str) -> Iterator[None]:
        self._lines.append(f"{label}:")
        self._is_open = True
        yield
        self._emit_jump(self._loops[-1][1])

    def break_(self) -> None:
        """Leave the innermost loop (or switch)."""
        self._emit_jump(self._loops[-1][1])

    def continue_(self) -> None:
        """The next round of the innermost loop."""
        self._emit_jump([begin for begin, _ in self._loops if begin][-1])

    def ret(self, value: Operand | None = None) -> None:
        if value is None:
            self._emit("ret void")
        else:
            given = self.as_type(value, self._returns)
            self._emit(f"ret {given.type} {given.text}")
        self._is_open = False

    def _new_name(self) -> str:
        self._n_names += 1
        return f"%v{self._n_names}"

    def new_label(self, stem: str) -> str:
        self._n_names += 1
        return f"{stem}{self._n_names}"

    def _emit(self, line: str) -> None:
        if self._is_open:
            self._lines.append(line)

    def _emit_jump(self, label: str) -> None:
        self._emit(f"br label %{label}")
        self._is_open = False

    def _end(self, jump: str, label: str) -> None:
        """End the current block, unless it has ended, and begin the one with this label."""
        self._emit(jump)
        self._lines.append(f"{label}:")
        self._is_open = True

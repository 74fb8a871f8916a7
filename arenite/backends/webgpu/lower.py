"""A GroupKernel becomes WGSL: one workgroup a tile, vector loops dealt out to its threads.

In: a checked kernel with int32 indices. Out: a Shader, whose text knows its arrays by functions
(`in0_word`, `out0_put`) that are written when it is known where they lie (`shader.py`).

    vector loop            for (v = start + lane; v < stop; v += threads)
    thread loop            v = lane
    sum from outside       a sum of each thread's own, then a tree over shared memory
    store outside of one   by the first thread
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from arenite.backends.webgpu.expressions import Expressions, type_of
from arenite.backends.webgpu.functions import texts_of
from arenite.backends.webgpu.maths import Functions
from arenite.backends.webgpu.reductions import combine_text, neutral, search_text
from arenite.backends.webgpu.shader import Shader
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType
from arenite.errors import NotCompiled

_PARAMETERS = "parameters"


def lower(kernel: ir.GroupKernel) -> Shader:
    """The text of a kernel."""
    return _Lowering(kernel).run()


class _Lowering:
    def __init__(self, kernel: ir.GroupKernel) -> None:
        self.kernel = kernel
        self.names: dict[str, str] = {}
        self.functions = Functions()
        shared = {array.name for array in kernel.shared}
        self.write = Expressions(shared, self.identifier, self.functions)
        self.depth = 1
        self.loop = 0  # whether a vector loop is around
        self.dtypes: dict[str, DType] = {}  # of accumulators
        self.partial: dict[str, str] = {}  # of accumulators that a vector loop changes: its own
        self.group_functions: dict[str, str] = {}
        self.stores_narrow: set[str] = set()
        self.requires = False
        self.n_identifiers = 0

    def identifier(self, name: str) -> str:
        """A name that WGSL takes, whatever the kernel calls it."""
        if name not in self.names:
            clean = re.sub(r"[^A-Za-z0-9]", "_", name).strip("_") or "x"
            self.names[name] = f"{clean}_{self.n_identifiers}"
            self.n_identifiers += 1
        return self.names[name]

    def run(self) -> Shader:
        kernel = self.kernel
        fields = [f"{array.name}_at: u32" for array in kernel.arrays]
        for size in kernel.sizes:
            self.names[size] = f"{_PARAMETERS}.size_{self.identifier(size)}"
            fields.append(f"{self.names[size].removeprefix(_PARAMETERS + '.')}: i32")
        fields += ["tiles: i32", "error_at: u32", "zero: u32"]
        tile = self.identifier(kernel.tile_var)
        shared = [
            f"var<workgroup> {self.identifier(s.name)}: array<{type_of(s.dtype)}, {s.count}>;"
            for s in kernel.shared
        ]
        self.block(kernel.body)
        body = self.write.lines
        text = [
            f"struct Parameters {{ {', '.join(fields)} }}",
            f"@group(0) @binding(0) var<uniform> {_PARAMETERS}: Parameters;",
            *shared,
            *texts_of(self.functions.helpers),
            *self.functions.texts.values(),
            *self.group_functions.values(),
            f"@compute @workgroup_size({kernel.threads})",
            "fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,",
            "        @builtin(local_invocation_index) lane: u32) {",
            f"  let {tile} = i32(group.x + group.y * groups.x);",
            f"  if ({tile} >= {_PARAMETERS}.tiles) {{ return; }}",
            *body,
            "}",
        ]
        return Shader(
            name=kernel.name,
            text="\n".join(text) + "\n",
            threads=kernel.threads,
            arrays=tuple((array.name, array.dtype.bits, array.role) for array in kernel.arrays),
            atomic=tuple(sorted(self.stores_narrow)),
            n_sizes=len(kernel.sizes),
            requires=self.requires,
        )

    # Lines.

    def line(self, text: str) -> None:
        self.write.lines.append("  " * self.depth + text)

    def expression(self, *roots: ir.Expr) -> list[str]:
        """Texts of a statement's expressions; what they need stands before."""
        return self.write.statement(roots, "  " * self.depth)

    def block(self, block: ir.Block) -> None:
        names = dict(self.names)
        for k, stmt in enumerate(block):
            declared = [s.name for s in block[:k] if isinstance(s, ir.Accumulator)]
            self.with_partial_sums(stmt, declared)
        # A name that ends here may be another's later.
        self.names = names

    def with_partial_sums(self, stmt: ir.Stmt, declared: list[str]) -> None:
        """A statement, and around it what threads sum up apart."""
        if self.loop:
            self.statement(stmt)
            return
        pending = [change for change in _changes_in_vectors(stmt) if _named(change)[0] in declared]
        changes = {_named(change)[0]: change for change in pending}
        for name, change in changes.items():
            if not isinstance(stmt, ir.For) or (not stmt.vector and _is_used(stmt, name)):
                raise NotCompiled(
                    f"{self.kernel.name}: {name} is summed by threads and read between, which is "
                    "not done on WebGPU yet"
                )
            for one, start in zip(_named(change), self.starts(change), strict=True):
                own = self.partial[one] = f"{self.identifier(one)}_own"
                self.line(f"var {own} = {start};")
        self.statement(stmt)
        for change in changes.values():
            self.combine(change)

    def starts(self, change: ir.Accumulate | ir.AccumulateArg) -> list[str]:
        if isinstance(change, ir.AccumulateArg):
            # As they are for the whole group: a tie is won by the smaller index.
            return [self.identifier(name) for name in _named(change)]
        dtype = self.dtypes[change.name]
        return [self.write.constant(neutral(change.op, dtype), dtype)]

    def combine(self, change: ir.Accumulate | ir.AccumulateArg) -> None:
        threads = self.kernel.threads
        own = [self.partial.pop(name) for name in _named(change)]
        whole = [self.identifier(name) for name in _named(change)]
        if isinstance(change, ir.AccumulateArg):
            kinds = [type_of(self.dtypes[name]) for name in _named(change)]
            function, text = search_text(change.op, kinds[0], threads)
            if kinds[0] == "f32":
                self.functions.helpers.add("is_nan")
            self.group_functions[function] = text
            found = self.write.fresh()
            self.line(f"let {found} = {function}(lane, {', '.join(own)});")
            self.line(f"{whole[0]} = {found}.best;")
            self.line(f"{whole[1]} = {found}.at;")
            return
        dtype = self.dtypes[change.name]
        both = self.write.binary(change.op, dtype, "a", "b")
        function, text = combine_text(change.op, dtype, type_of(dtype), both, threads)
        self.group_functions[function] = text
        combined = f"{function}(lane, {own[0]})"
        self.line(f"{whole[0]} = {self.write.binary(change.op, dtype, whole[0], combined)};")

    # Statements.

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(name, value):
                [text] = self.expression(value)
                self.write.define(name, value)
                self.names.pop(name, None)
                self.line(f"let {self.identifier(name)} = {text};")
            case ir.Store():
                self.store(stmt)
            case ir.For():
                self.for_loop(stmt)
            case ir.If(cond, then, else_):
                [text] = self.expression(cond)
                self.braced(f"if ({text})", then)
                if else_:
                    self.braced("else", else_)
            case ir.Accumulator(name, init):
                [text] = self.expression(init)
                self.dtypes[name] = init.dtype
                self.names.pop(name, None)
                self.line(f"var {self.identifier(name)}: {type_of(init.dtype)} = {text};")
            case ir.Accumulate(name, op, value):
                self.accumulate(name, op, value)
            case ir.AccumulateArg():
                self.accumulate_arg(stmt)
            case ir.Require(cond, error):
                self.requires = True
                texts = self.expression(cond, error)
                self.line(f"if ({self.first_alone()}!{texts[0]}) {{ fail(u32({texts[1]})); }}")
            case ir.Barrier():
                self.line("storageBarrier();")
                self.line("workgroupBarrier();")

    def first_alone(self) -> str:
        return "" if self.loop or self.kernel.threads == 1 else "lane == 0u && "

    def store(self, stmt: ir.Store) -> None:
        roots = [stmt.index, stmt.value, *([] if stmt.mask is None else [stmt.mask])]
        at, value, *mask = self.expression(*roots)
        shared = {array.name: array.dtype for array in self.kernel.shared}
        if stmt.array in shared:
            put = f"{self.identifier(stmt.array)}[u32({at})] = {value};"
        else:
            dtype = self.kernel.array(stmt.array).dtype
            if dtype.bits < 32:
                self.stores_narrow.add(stmt.array)
            put = f"{stmt.array}_put(u32({at}), {self.write.bits_of(value, dtype)});"
        guards = [self.first_alone().removesuffix(" && "), *mask]
        condition = " && ".join(guard for guard in guards if guard)
        self.line(f"if ({condition}) {{ {put} }}" if condition else put)

    def for_loop(self, loop: ir.For) -> None:
        texts = self.expression(loop.start, loop.stop)
        self.names.pop(loop.var, None)
        var = self.identifier(loop.var)
        is_dealt = loop.vector and not self.loop
        if is_dealt and self.kernel.is_thread_loop(loop):
            self.loop = 1
            self.braced("", loop.body, f"let {var} = i32(lane);")
            self.loop = 0
            return
        first, step = texts[0], "1i"
        if is_dealt and self.kernel.threads > 1:
            first, step = f"{first} + i32(lane)", f"{self.kernel.threads}i"
        head = f"for (var {var} = {first}; {var} < {texts[1]}; {var} += {step})"
        outside = self.loop
        self.loop = 1 if loop.vector else outside
        self.braced(head, loop.body)
        self.loop = outside

    def braced(self, head: str, block: ir.Block, first: str = "") -> None:
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        if first:
            self.line(first)
        self.block(block)
        self.depth -= 1
        self.line("}")

    def accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        target = self.partial.get(name) or self.identifier(name)
        dtype = self.dtypes[name]
        if (
            op == "add"
            and isinstance(value, ir.Binary)
            and value.op == "mul"
            and (type_of(dtype) == "f32")
        ):
            a, b = self.expression(value.a, value.b)
            self.line(f"{target} = fma({a}, {b}, {target});")
            return
        [text] = self.expression(value)
        after = text if op == "set" else self.write.binary(op, dtype, target, text)
        self.line(f"{target} = {after};")

    def accumulate_arg(self, stmt: ir.AccumulateArg) -> None:
        value, where = self.expression(stmt.value, stmt.index)
        best, at = (self.partial.get(n) or self.identifier(n) for n in (stmt.best, stmt.at))
        kind = type_of(self.dtypes[stmt.best])
        function, text = search_text(stmt.op, kind, self.kernel.threads)
        if kind == "f32":
            self.functions.helpers.add("is_nan")
        self.group_functions[function] = text
        held = self.write.fresh()
        self.line(f"let {held} = better_{function}({best}, {at}, {value}, {where});")
        self.line(f"{best} = {held}.best;")
        self.line(f"{at} = {held}.at;")


def _named(change: ir.Accumulate | ir.AccumulateArg) -> list[str]:
    return [change.name] if isinstance(change, ir.Accumulate) else [change.best, change.at]


def _changes_in_vectors(
    stmt: ir.Stmt, inside: bool = False
) -> Iterator[ir.Accumulate | ir.AccumulateArg]:
    """What vector loops in a statement accumulate."""
    if inside and isinstance(stmt, ir.Accumulate | ir.AccumulateArg):
        yield stmt
    inside = inside or (isinstance(stmt, ir.For) and stmt.vector)
    for block in ir.blocks(stmt):
        for one in block:
            yield from _changes_in_vectors(one, inside)


def _is_used(stmt: ir.Stmt, name: str) -> bool:
    """Whether a statement reads an accumulator, or changes it outside of vector loops."""
    if any(isinstance(e, ir.Name) and e.name == name for e in ir.walk(*ir.expressions(stmt))):
        return True
    if isinstance(stmt, ir.Accumulate | ir.AccumulateArg) and name in _named(stmt):
        return True
    if isinstance(stmt, ir.For) and stmt.vector:
        return False  # the check has seen to it that it is not read there
    return any(_is_used(one, name) for block in ir.blocks(stmt) for one in block)

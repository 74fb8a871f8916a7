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
from collections.abc import Iterator, Sequence
from dataclasses import replace

from arenite.backends.webgpu.expressions import Expressions, type_of
from arenite.backends.webgpu.functions import texts_of
from arenite.backends.webgpu.reductions import combine_text, search_text
from arenite.backends.webgpu.shader import Shader
from arenite.codegen import loop_ir as ir
from arenite.codegen import source
from arenite.codegen.group_check import touched
from arenite.codegen.kernels.values import neutral
from arenite.codegen.maths import definitions
from arenite.dtype import DType, Kind
from arenite.errors import NotCompiled

_PARAMETERS = "parameters"


def lower(kernel: ir.GroupKernel) -> Shader:
    """The text of a kernel, of those that are taken instead where a size is small, and of what
    follows."""
    smaller = tuple(
        (kernel.sizes.index(size), most, lower(other)) for size, most, other in kernel.smaller
    )
    shader = replace(_Lowering(Functions(), kernel).run(), smaller=smaller)
    if kernel.following is None:
        return shader
    following = lower(kernel.following)
    # They are bound to the same.
    requires = shader.requires or following.requires
    return replace(shader, requires=requires, following=replace(following, requires=requires))


class Functions:
    """The functions that one shader needs, by name, in an order in which they can be read: what an
    op is, spelled out once for all devices. Fma may be rounded twice here, as WGSL has it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.helpers: set[str] = set()
        self._definitions = definitions(has_fma=False, has_float64=False, is_ieee=False)

    @property
    def has_table(self) -> bool:
        """Whether one of them takes a number from a table, by an index that nobody proved."""
        return any(name.startswith("table_") for name in self.texts)

    def op(self, op: str, dtype: DType) -> str:
        """The function of an op on operands of a dtype."""
        function = self._definitions.op(op, dtype)
        if function is None:
            raise NotCompiled(f"{op} of {dtype} is not done on WebGPU yet")
        return self._written(function)

    def cast(self, source: DType, target: DType) -> str:
        return self._written(self._definitions.cast(source, target))

    def _written(self, function: ir.Function) -> str:
        name = f"{function.name}_"
        if name not in self.texts:
            out = _Lowering(self)
            parameters = ", ".join(
                f"{out.identifier(p.name)}: {type_of(p.dtype)}" for p in function.parameters
            )
            try:
                out.body(function)
            except NotCompiled as refusal:
                raise NotCompiled(f"{function.name} is not done on WebGPU yet: {refusal}") from None
            head = f"fn {name}({parameters}) -> {type_of(function.result.dtype)} {{"
            self.texts[name] = "\n".join([head, *out.write.lines, "}"])
        return name


#: What a function is in: one thread, which has no arrays.
_ALONE = ir.GroupKernel("function", (), (), ir.index(1), "tile", (), threads=1)


class _Lowering(source.Statements):
    """Writes the body of a function, or a kernel."""

    write: Expressions

    def __init__(self, functions: Functions, kernel: ir.GroupKernel = _ALONE) -> None:
        shared = {array.name for array in kernel.shared}
        super().__init__(Expressions(shared, self.identifier, functions))
        self.functions, self.kernel = functions, kernel
        self.names: dict[str, str] = {}
        self.n_identifiers = 0
        self.loop = 0  # whether a vector loop is around
        self.dtypes: dict[str, DType] = {}  # of accumulators
        self.partial: dict[str, str] = {}  # of accumulators that a vector loop changes: its own
        self.group_functions: dict[str, str] = {}
        self.stores_narrow: set[str] = set()
        self.requires = False
        #: Whether what a thread stores to an argument may be another's to read, or to store anew:
        #: foreign text leaves results in shared memory, from where each is stored once.
        reads, writes = touched(kernel.body)
        is_foreign = any(isinstance(one, ir.Foreign) for one in ir.statements(kernel.body))
        self.rereads = not is_foreign or bool(reads & (writes - shared))
        self.foreign: list[ir.Foreign] = []

    def identifier(self, name: str) -> str:
        """A name that WGSL takes, whatever the kernel calls it."""
        if name not in self.names:
            clean = re.sub(r"[^A-Za-z0-9]", "_", name).strip("_") or "x"
            self.names[name] = f"{clean}_{self.n_identifiers}"
            self.n_identifiers += 1
        return self.names[name]

    def declared(self, name: str) -> str:
        """A name that means something new from here on."""
        self.names.pop(name, None)
        return self.identifier(name)

    def run(self) -> Shader:
        kernel = self.kernel
        fields = [f"{array.name}_at: u32" for array in kernel.arrays]
        for size in kernel.sizes:
            self.names[size] = f"{_PARAMETERS}.size_{self.identifier(size)}"
            fields.append(f"{self.names[size].removeprefix(_PARAMETERS + '.')}: i32")
        fields += ["tiles: i32", "error_at: u32", "zero: u32"]
        tile = self.identifier(kernel.tile_var)
        shared = [
            f"var<workgroup> {self.identifier(s.name)}: array<{_element_type(s)}, {s.count}>;"
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
            *dict.fromkeys(one.functions for one in self.foreign if one.functions),
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
            wide=tuple(sorted({name for one in self.foreign for name in one.wide})),
            teams=tuple(sorted({team for one in self.foreign for team in one.teams})),
            is_proven=not kernel.unproven and not self.functions.has_table,
        )

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
        pending = [
            change for change in _changes_in_vectors(stmt) if ir.changed(change)[0] in declared
        ]
        changes = {ir.changed(change)[0]: change for change in pending}
        for name, change in changes.items():
            if not isinstance(stmt, ir.For) or (not stmt.vector and _is_used(stmt, name)):
                raise NotCompiled(
                    f"{self.kernel.name}: {name} is summed by threads and read between, which is "
                    "not done on WebGPU yet"
                )
            for one, start in zip(ir.changed(change), self.starts(change), strict=True):
                own = self.partial[one] = f"{self.identifier(one)}_own"
                self.line(f"var {own} = {start};")
        self.statement(stmt)
        for change in changes.values():
            self.combine(change)

    def starts(self, change: ir.Accumulate | ir.AccumulateArg) -> list[str]:
        if isinstance(change, ir.AccumulateArg):
            # As they are for the whole group: a tie is won by the smaller index.
            return [self.identifier(name) for name in ir.changed(change)]
        dtype = self.dtypes[change.name]
        return [self.write.literal(neutral(change.op, dtype), dtype)]

    def combine(self, change: ir.Accumulate | ir.AccumulateArg) -> None:
        threads = self.kernel.threads
        own = [self.partial.pop(name) for name in ir.changed(change)]
        whole = [self.identifier(name) for name in ir.changed(change)]
        if isinstance(change, ir.AccumulateArg):
            self.take_over(whole, f"{self.search(change)}(lane, {', '.join(own)})")
            return
        dtype = self.dtypes[change.name]
        both = self.write.combined(change.op, dtype, "a", "b")
        function, text = combine_text(change.op, dtype, type_of(dtype), both, threads)
        self.group_functions[function] = text
        combined = f"{function}(lane, {own[0]})"
        self.line(f"{whole[0]} = {self.write.combined(change.op, dtype, whole[0], combined)};")

    # Statements.

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(name, value):
                [text] = self.texts(value)
                self.write.define(name, value)
                self.line(f"let {self.declared(name)} = {text};")
            case ir.Store():
                self.store(stmt)
            case ir.For():
                self.for_loop(stmt)
            case ir.Accumulator(name, init):
                [text] = self.texts(init)
                self.dtypes[name] = init.dtype
                self.line(f"var {self.declared(name)}: {type_of(init.dtype)} = {text};")
            case ir.Accumulate(name, op, value):
                self.accumulate(name, op, value)
            case ir.AccumulateArg():
                self.accumulate_arg(stmt)
            case ir.Require(cond, error):
                self.requires = True
                texts = self.texts(cond, error)
                fail = f"fail({_PARAMETERS}.error_at, u32({texts[1]}));"
                self.line(f"if ({self.first_alone()}!{texts[0]}) {{ {fail} }}")
            case ir.Barrier():
                if self.rereads:
                    self.line("storageBarrier();")
                self.line("workgroupBarrier();")
            case ir.Foreign(text):
                self.foreign.append(stmt)
                for line in text.splitlines():
                    self.line(re.sub(r"\$(\w+)", lambda found: self.identifier(found[1]), line))
            case _:
                super().statement(stmt)

    def first_alone(self) -> str:
        return "" if self.loop or self.kernel.threads == 1 else "lane == 0u && "

    def store(self, stmt: ir.Store) -> None:
        roots = [stmt.index, stmt.value, *([] if stmt.mask is None else [stmt.mask])]
        at, value, *mask = self.texts(*roots)
        if stmt.array in self.write.shared:
            put = f"{self.identifier(stmt.array)}[u32({at})] = {value};"
        else:
            dtype = self.kernel.array(stmt.array).dtype
            if dtype.bits < 32:
                self.stores_narrow.add(stmt.array)
            put = self.put(stmt.array, at, value, dtype)
        guards = [self.first_alone().removesuffix(" && "), *mask]
        condition = " && ".join(guard for guard in guards if guard)
        self.line(f"if ({condition}) {{ {put} }}" if condition else put)

    def put(self, array: str, at: str, value: str, dtype: DType) -> str:
        """A store to an argument: of a word, of a part of one, or of two."""
        if dtype.bits < 64:
            return f"{array}_put(u32({at}), {self.write.bits_of(value, dtype)});"
        kind, word, bits = type_of(dtype), self.write.fresh(), self.write.fresh()
        self.line(f"let {word} = u32({at}) * 2u;")
        self.line(f"let {bits} = {value if kind == 'u64' else f'bitcast<u64>({value})'};")
        halves = f"u32({bits} & 0xfffffffflu)", f"u32({bits} >> 32u)"
        return " ".join(f"{array}_put({word} + {k}u, {half});" for k, half in enumerate(halves))

    def for_loop(self, loop: ir.For) -> None:
        first, stop = self.texts(loop.start, loop.stop)
        var, outside = self.declared(loop.var), self.loop
        is_dealt, step = loop.vector and not outside, "1i"
        if is_dealt and self.kernel.threads > 1:
            first, step = f"{first} + i32(lane)", f"{self.kernel.threads}i"
        head = f"for (var {var} = {first}; {var} < {stop}; {var} += {step})"
        if is_dealt and self.kernel.is_thread_loop(loop):
            head = ""
            self.line(f"let {var} = i32(lane);")
        self.loop = 1 if loop.vector else outside
        self.braced(head, loop.body)
        self.loop = outside

    def accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        target = self.partial.get(name) or self.identifier(name)
        dtype = self.dtypes[name]
        is_sum = op == "add" and dtype.kind is Kind.FLOAT
        if is_sum and isinstance(value, ir.Binary) and value.op == "mul":
            a, b = map(self.write.without_zero, self.texts(value.a, value.b))
            self.line(f"{target} = fma({a}, {b}, {target});")
            return
        [text] = self.texts(value)
        after = text if op == "set" else self.write.combined(op, dtype, target, text)
        self.line(f"{target} = {after};")

    def accumulate_arg(self, stmt: ir.AccumulateArg) -> None:
        given = self.texts(stmt.value, stmt.index)
        found = [self.partial.get(name) or self.identifier(name) for name in ir.changed(stmt)]
        self.take_over(found, f"better_{self.search(stmt)}({', '.join([*found, *given])})")

    def search(self, change: ir.AccumulateArg) -> str:
        """The function that searches in a group."""
        kind = type_of(self.dtypes[change.best])
        function, text = search_text(change.op, kind, self.kernel.threads)
        self.group_functions[function] = text
        if kind.startswith("f"):
            self.functions.helpers.add(f"is_nan_{kind}")
        return function

    def take_over(self, targets: Sequence[str], found: str) -> None:
        """What a search finds, and where, becomes what these hold."""
        name = self.write.fresh()
        self.line(f"let {name} = {found};")
        for target, field in zip(targets, ("best", "at"), strict=True):
            self.line(f"{target} = {name}.{field};")


def _element_type(array: ir.SharedArray) -> str:
    kind = type_of(array.dtype)
    return kind if array.width == 1 else f"vec{array.width}<{kind}>"


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
    if name in ir.changed(stmt):
        return True
    if isinstance(stmt, ir.For) and stmt.vector:
        return False  # the check has seen to it that it is not read there
    return any(_is_used(one, name) for block in ir.blocks(stmt) for one in block)

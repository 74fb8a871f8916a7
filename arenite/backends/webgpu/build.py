"""How kernels are cut for groups of threads.

In: a kernel of a schedule. Out: a GroupKernel with int32 indices, checked; NotCompiled with the
reason for what is not done here yet.

    maps              all points counted through, a stretch of them a group (`map.py`)
    reduced rows      a group a row; threads share the row, or take a column each
    products          of weights that lie as they should: `fast_products.py`; of all others a group
                      has a square of results, through shared memory (`tiled_product.py`)
    updates           rows are computed as they are written (`update.py`)
    indexing by data  as maps (`special.py`); scans by blocks (`scan.py`)
    convolutions      as products, where channels lie side by side (`conv.py`)
    sorting           a thread an element, which counts those before it (`sort.py`)
    all else          as the neutral builders cut it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from arenite.backends.webgpu import scan, special
from arenite.backends.webgpu.attention import build_attention
from arenite.backends.webgpu.bounds_proof import unproven
from arenite.backends.webgpu.channels_last import CONV
from arenite.backends.webgpu.conv import build_conv
from arenite.backends.webgpu.fast_products import build_fast_product, is_above
from arenite.backends.webgpu.lower import lower
from arenite.backends.webgpu.map import THREADS, build_map, build_short_sums
from arenite.backends.webgpu.ops import MOST_ROWS, NORMED_PRODUCT, PRODUCT, ROWS_FOR_MANY, UPDATE
from arenite.backends.webgpu.sort import build_sort
from arenite.backends.webgpu.tiled_product import build_product
from arenite.backends.webgpu.turns import refuse_long_loops
from arenite.backends.webgpu.update import build_update
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check, is_storable
from arenite.codegen.groups import grouped
from arenite.codegen.index_width import narrow_indices
from arenite.codegen.kernels import block_products, blocks, narrow
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.plain import refuse_layouts, with_origins
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import UINT32, index_expr
from arenite.codegen.wide_integers import with_wide_integers
from arenite.codegen.word_pairs import with_word_pairs
from arenite.device.webgpu import WORD_NBYTES
from arenite.errors import NotCompiled
from arenite.ir.dim import Dim, Var, bounds, ceildiv, product, substitute, variables
from arenite.ir.graph import variables_of
from arenite.ir.node import Node
from arenite.ir.ops.access import is_elementwise, is_view
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import is_made_up

#: Of a group whose threads take a column each.
COLUMN_THREADS = 64


def _rows_of_blocks(kernel: Kernel) -> Built:
    """A tile for each block of each row: one row alone, as of an embedding, is many tiles too. Its
    runs are one loop of threads, in which none waits for another; groups are as large as those of
    maps, which a dispatch may have beside it."""
    draft = RowKernel(kernel)
    w, indices = draft.node.inputs
    count = bounds(w.shape[1])[1] // w.dtype.block_length
    number, row = ir.Name("row"), ir.Name("result_row")
    taken = blocks.taken_index(draft.index(indices, row), w.shape[0])
    by_length: dict[ir.Expr, list[ir.Store]] = {}
    for run in blocks.block_of_row(draft, w, blocks.AT, row):
        assert isinstance(run, ir.For)
        by_length.setdefault(run.stop, []).extend(s for s in run.body if isinstance(s, ir.Store))
    loops = [
        ir.For("lane", ir.index(0), length, (*taken, *_values_first(stores)), vector=True)
        for length, stores in by_length.items()
    ]
    body = (ir.Let("result_row", number // count), ir.Let("block", number % count), *loops)
    built = draft.in_tiles(product(indices.shape) * count, 1, body)
    return replace(built, loops=grouped(built.loops, THREADS))


def _values_first(stores: Sequence[ir.Store]) -> ir.Block:
    """All values are read before any is stored: loads that stand behind a store wait for it."""
    names = [f"value{k}" for k in range(len(stores))]
    lets = [ir.Let(name, one.value) for name, one in zip(names, stores, strict=True)]
    named = (ir.Name(name, one.value.dtype) for name, one in zip(names, stores, strict=True))
    return (*lets, *(replace(one, value=v) for one, v in zip(stores, named, strict=True)))


#: Kernels of their own, by the op of the first stage.
_BUILDERS = {
    **special.BUILDERS,
    **scan.BUILDERS,
    **blocks.BUILDERS,
    **block_products.BUILDERS,
    **narrow.BUILDERS,
    "rows_of_blocks": _rows_of_blocks,
}
#: Reductions whose meaning is their factors' product, combined; others are the CPU's own layouts.
_REDUCTIONS = frozenset("sum prod max min any all argmax argmin matmul conv".split()) | {
    PRODUCT,
    NORMED_PRODUCT,
    CONV,
}


def build(
    kernel: Kernel,
    features: Collection[str] = (),
    same_sums: bool = False,
    most_turns: int | None = None,
) -> Built:
    """The loops of a kernel for groups of threads, on a device with these features, which ends the
    loops of a thread after so many turns; with `same_sums` a row of a product is added up in the
    same order whatever the number of rows."""
    with with_origins(kernel):
        refuse_layouts(kernel, "webgpu")
        _refuse_sizes(kernel)
        built = _cut(kernel, same_sums)
        _refuse_elements(kernel, built)
        return replace(built, loops=_narrowed(kernel, built, features, most_turns))


def _cut(kernel: Kernel, same_sums: bool) -> Built:
    node = kernel.stages[0].node
    if node.op in ("sort", "argsort"):
        return build_sort(kernel)
    if node.op == UPDATE:
        return build_update(kernel)
    if node.op == "transfer" and node.dtype.bits >= 64:
        return _word_transfer(kernel)
    attention = build_attention(kernel)
    if attention is not None:
        return attention
    builder = _BUILDERS.get(node.op)
    if builder is not None:
        built = builder(kernel)
        if isinstance(built.loops, ir.GroupKernel):
            return built
        return replace(built, loops=grouped(built.loops, COLUMN_THREADS))
    for stage in kernel.stages:
        node = stage.node
        is_known = is_elementwise(node) or is_view(node) or is_made_up(node)
        if not is_known and node.op not in _REDUCTIONS:
            raise NotCompiled(f"{node.op} is not done on WebGPU yet")
    if not kernel.axes:
        return build_map(kernel)
    fast = build_conv(kernel) or build_fast_product(kernel, same_sums)
    if fast is None and kernel.stages[0].node.op == NORMED_PRODUCT:
        # More than its factors' product: no plain loops say it.
        raise NotCompiled(f"{NORMED_PRODUCT} of rows that do not lie as a matrix")
    return fast or build_product(kernel) or build_short_sums(kernel) or _rows(kernel)


def _rows(kernel: Kernel) -> Built:
    """Reduced rows; of those that only kernels for many rows read, none where rows are few."""
    built = _Rows(kernel).build()
    n_rows = kernel.outputs[0].shape[0] if kernel.outputs[0].ndim else 1
    if any(node.op != ROWS_FOR_MANY for node in kernel.outputs):
        return built
    return replace(built, tiles=is_above(n_rows, MOST_ROWS) * built.tiles)


def _word_transfer(kernel: Kernel) -> Built:
    """A copy in words, for elements that the device may not compute with."""
    node = kernel.stages[0].node
    n_words, word = node.nbytes // WORD_NBYTES, ir.Name("word")
    first = ir.Name("tile") * THREADS
    last = ir.Binary("min", first + THREADS, index_expr(n_words))
    copied = ir.Store("out0", word, ir.Load("in0", word, UINT32))
    arrays = [ir.ArrayArg("in0", UINT32, "in"), ir.ArrayArg("out0", UINT32, "out")]
    every = ir.For("word", first, last, (copied,), vector=True)
    built = Built.of(kernel.name, arrays, node.shape, ceildiv(n_words, THREADS), (every,))
    return replace(built, loops=grouped(built.loops, THREADS))


def _refuse_sizes(kernel: Kernel) -> None:
    for node in (*kernel.inputs, *kernel.outputs):
        if bounds(node.nbytes)[1] >= 2**31:
            raise NotCompiled(
                f"{node.op} of {node.nbytes} bytes: WebGPU's indices have 32 bits; cut it in parts"
            )


def _refuse_elements(kernel: Kernel, built: Built) -> None:
    """NotCompiled for elements that words don't hold; what kernels of their own take apart is
    bytes."""
    for node, array in zip((*kernel.inputs, *kernel.outputs), built.loops.arrays, strict=False):
        if not is_storable(array.dtype):
            raise NotCompiled(f"{node.op}: elements of {node.dtype} are not done on WebGPU")


def _narrowed(
    kernel: Kernel, built: Built, features: Collection[str], most_turns: int | None
) -> ir.GroupKernel:
    loops = built.loops
    assert isinstance(loops, ir.GroupKernel)
    in_space = [var for dim in kernel.space for var in variables(dim)]
    in_nodes = [var for node in _nodes(kernel) for var in variables_of(node)]
    known = {var.symbol: var for var in (*in_space, *in_nodes)}
    missing = [name for name in loops.sizes if name not in known]
    if missing:
        raise NotCompiled(f"{kernel.name}: bounds of {', '.join(missing)} are not known here")
    narrow = _with_proofs(
        loops, known, _counts(kernel, built), built.tiles, frozenset(features), most_turns
    )
    # What has no WGSL is refused here, where it is known where it comes from.
    missing = sorted(lower(narrow).features - set(features))
    if missing:
        raise NotCompiled(
            f"{kernel.name} needs {' and '.join(missing)}, which this WebGPU device does not have"
        )
    return narrow


def _with_proofs(
    loops: ir.GroupKernel,
    known: Mapping[str, Var],
    counts: Mapping[str, Dim],
    tiles: Dim,
    features: frozenset[str],
    most_turns: int | None,
) -> ir.GroupKernel:
    """Loops, those for smaller sizes and those that follow: with narrow indices, checked, and with
    what is not proven of their accesses."""
    smaller = []
    for size, most, other in loops.smaller:
        low, high = bounds(known[size])
        fewer = Var(known[size].name, low, min(most, high))
        to_fewer: dict[Var, Dim] = {known[size]: fewer}
        few_counts = {name: substitute(count, to_fewer) for name, count in counts.items()}
        few_known, few_tiles = {**known, size: fewer}, substitute(tiles, to_fewer)
        few = _with_proofs(other, few_known, few_counts, few_tiles, features, most_turns)
        smaller.append((size, most, few))
    following = loops.following
    if following is not None:
        following = _with_proofs(following, known, counts, tiles, features, most_turns)
    if most_turns is not None:
        refuse_long_loops(loops, known, tiles, most_turns)
    sizes = {name: bounds(var) for name, var in known.items()}
    narrow = replace(
        _with_indices(loops, sizes, features),
        smaller=tuple(smaller),
        following=following,
        unproven=unproven(loops, counts, known, tiles),
    )
    check(narrow)
    return narrow


def _counts(kernel: Kernel, built: Built) -> dict[str, Dim]:
    """How many elements each array has, as loops count them."""
    nodes = *kernel.inputs, *kernel.outputs
    nbytes = [*(one.nbytes for one in nodes), *(one.nbytes for one in built.scratch)]
    return {
        array.name: ceildiv(size * 8, array.dtype.bits)
        for array, size in zip(built.loops.arrays, nbytes, strict=True)
    }


def _with_indices(
    loops: ir.GroupKernel, sizes: Mapping[str, tuple[int, int]], features: Collection[str]
) -> ir.GroupKernel:
    """With indices of 32 bits. Data of 64 bits is that where the device has it, else pairs of
    words; integers that fit 32 bits, as indices do, are neither."""
    try:
        return narrow_indices(loops, sizes)
    except NotCompiled:
        wide = with_wide_integers(loops, sizes)
        return wide if "shader-int64" in features else with_word_pairs(wide)


def _nodes(kernel: Kernel) -> list[Node]:
    """Those it reads and computes, and those that are made up between."""
    given, seen = set(kernel.inputs), dict.fromkeys(kernel.inputs)
    pending = [stage.node for stage in kernel.stages]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen[node] = None
            pending += [one for one in node.inputs if one not in given]
    return list(seen)


class _Rows(KernelBuilder):
    """A group for each row, or for some columns of it where those are not reduced."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.nest = replace(self.nest, tile_rows=1, chunk=COLUMN_THREADS)

    def build(self) -> Built:
        built = super().build()
        threads = COLUMN_THREADS
        if not self.nest.vector_is_outer and self.nest.vector is not None:
            columns = bounds(self.nest.vector.size)[1]
            while threads < min(columns, THREADS):
                threads *= 2
        return replace(built, loops=grouped(built.loops, threads))

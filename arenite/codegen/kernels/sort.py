"""Sorting: each line becomes words whose order as unsigned integers is the order asked for.

    word    key of the element | its place in the line       places differ, so no two are equal
    key     the bits of the element, turned so that they count upwards: -inf ... inf, NaN;
            -0.0 is 0.0, and all bits are flipped to sort downwards

Keys of up to 32 bits share a 64-bit word with the place, wider ones take two words. A line is
sorted in runs of 64, each word put where the number of smaller ones says; then pairs of runs are
merged until one is left, from one half of the tile's scratch into the other and back:

    scratch of a tile    |  a: `size` words  |  b: `size` words  |
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.special import RowKernel, three_axes
from arenite.codegen.kernels.values import cast, check_dtype, compute_dtype, index_expr, loop
from arenite.dtype import BY_NAME, UINT32, UINT64, Kind
from arenite.ir.dim import bounds, ceildiv, maximum
from arenite.schedule.kernel import Kernel

#: Elements that are sorted by counting, before merging begins.
RUN = 64
#: Tiles at the most, since each has scratch of its own.
MAX_TILES = 64
#: Elements in one tile, at least.
TILE_POINTS = 4096
_GREATEST = ir.Const(2**64 - 1, UINT64)


def build_sort(kernel: Kernel) -> Built:
    return _Sort(kernel).build()


class _Sort:
    def __init__(self, kernel: Kernel) -> None:
        self.draft = RowKernel(kernel)
        self.node = kernel.stages[0].node
        [self.x] = self.node.inputs
        check_dtype(self.x)
        self.before, self.size, self.after = three_axes(self.x.shape, self.node.attr("axis"))
        self.n = index_expr(self.size)
        wide = compute_dtype(self.x.dtype)
        self.n_words = 1 if wide.bits <= 32 else 2

    def build(self) -> Built:
        lines = self.before * self.after
        at_least = max(1, TILE_POINTS // max(1, bounds(self.size)[1]))
        tile_lines = maximum(ceildiv(lines, MAX_TILES), at_least)
        tiles = ceildiv(lines, tile_lines)
        scratch = Scratch(UINT64, tiles * self.size * 2)
        row, behind = ir.Name("row"), index_expr(self.after)
        body: ir.Block = (
            ir.Let("first", row // behind * self.n * behind + row % behind),
            ir.Let("base", ir.Name("tile") * self.n * 2),
            self._runs(),
            *self._merges(),
            self._written(),
        )
        return self.draft.in_tiles(lines, tile_lines, body, scratch=(scratch,) * self.n_words)

    def _element(self, k: ir.Expr) -> ir.Expr:
        """The element at place k of the line."""
        return self.draft.load(self.x, ir.Name("first") + k * index_expr(self.after))

    def _load(self, at: ir.Expr, mask: ir.Expr | None = None) -> list[ir.Expr]:
        """The words at a place of the scratch; the greatest of all where there is none."""
        other = None if mask is None else _GREATEST
        return [ir.Load(f"scratch{word}", at, UINT64, mask, other) for word in range(self.n_words)]

    def _store(self, at: ir.Expr, words: Sequence[ir.Expr]) -> ir.Block:
        return tuple(ir.Store(f"scratch{k}", at, word) for k, word in enumerate(words))

    def _words(self, k: ir.Expr) -> list[ir.Expr]:
        key = sort_key(self._element(k), self.node.attr("descending"))
        place = ir.Cast(k, UINT64)
        if self.n_words == 2:
            return [key, place]
        return [(ir.Cast(key, UINT64) << 32) | place]

    def _runs(self) -> ir.Stmt:
        """Words into `b`, then each to its place among those of its run, in `a`."""
        base, begin, stop = ir.Name("base"), ir.Name("begin"), ir.Name("stop")
        k, j = ir.Name("k"), ir.Name("j")
        made = ir.For("k", begin, stop, self._store(base + self.n + k, self._words(k)), vector=True)
        mine = [ir.Name(f"mine{word}", UINT64) for word in range(self.n_words)]
        smaller = _less(self._load(base + self.n + j), mine)
        count = ir.Accumulate("rank", "add", ir.Cast(smaller, ir.INT64))
        ranked: ir.Block = (
            *_lets("mine", self._load(base + self.n + k)),
            ir.Accumulator("rank", ir.index(0)),
            ir.For("j", begin, stop, (count,)),
            *self._store(base + begin + ir.Name("rank"), mine),
        )
        placed = ir.For("k", begin, stop, ranked, vector=True)
        bounds_of_run = (
            ir.Let("begin", ir.Name("run") * RUN),
            ir.Let("stop", ir.Binary("min", begin + RUN, self.n)),
        )
        return loop("run", ceildiv(self.size, RUN), *bounds_of_run, made, placed, vector=False)

    def _merges(self) -> ir.Block:
        """Pairs of runs become one, in as many passes as it takes."""
        most = max(0, (-(-bounds(self.size)[1] // RUN) - 1).bit_length())
        step = ir.Name("step")
        width = ir.Binary("shift_left", ir.index(RUN), step)
        is_left = ir.Cast(width < self.n, ir.INT64)
        count: ir.Block = (
            ir.Accumulator("passes", ir.index(0)),
            loop("step", most, ir.Accumulate("passes", "add", is_left), vector=False),
        )
        base, one = ir.Name("base"), ir.Binary("and", step, ir.index(1))
        pair = ir.Name("pair")
        bounds_of_pair: ir.Block = (
            ir.Let("begin", pair * ir.Name("width") * 2),
            ir.Let("middle", ir.Binary("min", ir.Name("begin") + ir.Name("width"), self.n)),
            ir.Let("stop", ir.Binary("min", ir.Name("middle") + ir.Name("width"), self.n)),
        )
        pairs = (self.n + ir.Name("width") * 2 - 1) // (ir.Name("width") * 2)
        body = (
            ir.Let("width", width),
            ir.Let("source", base + one * self.n),
            ir.Let("target", base + self.n - one * self.n),
            ir.For("pair", ir.index(0), pairs, (*bounds_of_pair, *self._merge())),
        )
        return (*count, ir.For("step", ir.index(0), ir.Name("passes"), body))

    def _merge(self) -> ir.Block:
        """One pair: the smaller of the two first words that are left, until none is."""
        source, middle, stop = (ir.Name(name) for name in ("source", "middle", "stop"))
        left, right, k = ir.Name("left"), ir.Name("right"), ir.Name("k")
        one = self._load(source + left, left < middle)
        other = self._load(source + right, right < stop)
        names = [
            (ir.Name(f"one{word}", UINT64), ir.Name(f"other{word}", UINT64))
            for word in range(self.n_words)
        ]
        takes_left = ir.Name("takes_left", ir.BOOL)
        step = ir.Cast(takes_left, ir.INT64)
        body: ir.Block = (
            *_lets("one", one),
            *_lets("other", other),
            ir.Let("takes_left", _less([a for a, _ in names], [b for _, b in names])),
            *self._store(ir.Name("target") + k, [ir.Select(takes_left, a, b) for a, b in names]),
            ir.Accumulate("left", "set", left + step),
            ir.Accumulate("right", "set", right + (1 - step)),
        )
        return (
            ir.Accumulator("left", ir.Name("begin")),
            ir.Accumulator("right", middle),
            ir.For("k", ir.Name("begin"), stop, body),
        )

    def _written(self) -> ir.Stmt:
        """From the half the last pass wrote to the result."""
        k = ir.Name("k")
        half = ir.Binary("and", ir.Name("passes"), ir.index(1)) * self.n
        word = self._load(ir.Name("base") + half + k)[-1]
        if self.n_words == 1:
            word = word & (2**32 - 1)
        place = ir.Name("place")
        value = place if self.node.op == "argsort" else self._element(place)
        at = ir.Name("first") + k * index_expr(self.after)
        body: ir.Block = (ir.Let("place", ir.Cast(word, ir.INT64)), ir.Store("out0", at, value))
        return loop("k", self.size, *body)


def _lets(name: str, values: Sequence[ir.Expr]) -> list[ir.Let]:
    """Values under a name each: name0, name1."""
    return [ir.Let(f"{name}{k}", value) for k, value in enumerate(values)]


def _less(a: Sequence[ir.Expr], b: Sequence[ir.Expr]) -> ir.Expr:
    """Whether words come before others, the first ones counting most."""
    less: ir.Expr = ir.Binary("lt", a[-1], b[-1])
    for one, other in zip(a[-2::-1], b[-2::-1], strict=True):
        less = ir.Binary("lt", one, other) | (ir.Binary("eq", one, other) & less)
    return less


def sort_key(x: ir.Expr, descending: bool) -> ir.Expr:
    """An element as an unsigned integer of 32 or 64 bits that is in order like it."""
    kind, bits = x.dtype.kind, max(32, x.dtype.bits)
    dtype = UINT32 if bits == 32 else UINT64
    top, ones = ir.Const(1 << bits - 1, dtype), ir.Const((1 << bits) - 1, dtype)
    if kind is Kind.FLOAT:
        wide = compute_dtype(x.dtype)
        number = ir.Binary("add", cast(x, wide), ir.Const(0.0, wide))  # -0.0 becomes 0.0
        code = ir.Bitcast(number, dtype)
        is_negative = ir.Binary("ge", code, top)
        key: ir.Expr = ir.Select(is_negative, ir.Unary("not", code), ir.Binary("or", code, top))
        key = ir.Select(ir.Unary("isnan", number), ones, key)
    elif kind is Kind.SIGNED:
        key = ir.Binary("xor", cast(cast(x, BY_NAME[f"int{bits}"]), dtype), top)
    else:
        key = cast(x, dtype)
    return ir.Unary("not", key) if descending else key


BUILDERS = {"sort": build_sort, "argsort": build_sort}

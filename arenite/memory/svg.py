"""A plan as a picture: all memory to scale as one bar, and the work region under a lens.

    title
    [ token_embd | blk.0 … blk.29 |  k0 … k29  |  v0 … v29  |w]    bytes across, by layer
                                                           /   \\
    [ box a  ][ box c      ]                                       time across, bytes up,
    [ box b      ][ box d  ]                                       one box a value
    legend: regions with their bytes; what the colours of the boxes are

The text is plain SVG without scripts; hovering names what is below. Ids come from files of unknown
origin, so every one is escaped and stripped of what XML forbids. Style rules hold inside of the
picture alone, so that it can stand in a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from zlib import crc32

from arenite.device.allocator import readable_nbytes
from arenite.memory.canvas import (
    LETTER,
    MARGIN,
    SMALL_LETTER,
    WIDTH,
    Canvas,
    Scale,
    byte_marks,
    cut,
    escape,
    tick_marks,
)
from arenite.memory.groups import Group, few_runs, kind_of, kinds_of, runs_of
from arenite.memory.plan import HOST
from arenite.memory.values import ARENA_REGIONS, RESIDENT_REGIONS, ValueId

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan, Region, Slot

#: Boxes drawn at the most; the smallest are left out and the picture says so.
MAX_BOXES = 20_000
#: Runs of layers in a region that are drawn by themselves; the smallest are one.
MAX_RUNS = 16
#: Layers of a run that are drawn one by one.
MAX_LAYERS = 400
#: Pixels of a region in which layers can be told apart.
LEAST_LAYERS = 4
#: Values named when hovering over a layer, and letters of a name.
MAX_NAMED, MAX_LETTERS = 12, 200

#: Where panels begin, room for the figures of their scale being to the left.
LEFT, RIGHT = MARGIN + 60, WIDTH - MARGIN
BAR_HEIGHT, LENS_HEIGHT, PANEL_HEIGHT = 52, 40, 280
ROW_HEIGHT = 20

REGION_COLOURS = {
    "packed": ("#f2b36b", "#eaa04a"),
    "state": ("#c3a5dc", "#b491d2"),
    "work": ("#7db4e6", "#7db4e6"),
    "mapped": ("#9ccc8f", "#86be77"),
    "io": ("#e58f8f", "#dd7878"),
    "source": ("#d9d9d9", "#c9c9c9"),
    "device": ("#8fd0d0", "#77c2c2"),
}
REGION_MEANINGS = {
    "packed": "weights, laid out for the kernels",
    "state": "kept from run to run",
    "work": "activations and scratch",
    "mapped": "weights, read in place",
    "io": "inputs and outputs",
    "source": "read once at load, given back",
    "device": "the device's own, beside all values",
}
#: Of weights in memory that is not the host's: what is read there is no file.
UPLOADED = "weights, as the file has them"
#: Of the kinds that fill the work region: as bright as no other, to be told apart in print too.
KIND_COLOURS = ("#0b3c6f", "#f0b429", "#4b9cd8", "#94401c", "#2e8b57", "#e58fc0")
OTHER_COLOUR = "#c4c4c4"
#: Of boxes that are all of one kind.
SHADES = ("#0b3c6f", "#1d5590", "#0a3058", "#356ba6")
#: On which text is white.
DARK_COLOURS = {KIND_COLOURS[0], KIND_COLOURS[3], KIND_COLOURS[4], *SHADES}

STYLE = """
.arenite-plan text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: #222 }
.arenite-plan text.title { font-size: 19px; font-weight: 600 }
.arenite-plan text.head { font-weight: 600 }
.arenite-plan text.small { font-size: 12.5px }
.arenite-plan text.soft { fill: #555 }
.arenite-plan text.inside { font-size: 12.5px; pointer-events: none }
.arenite-plan text.light { fill: #fff }
.arenite-plan .edge { stroke: #fff; stroke-width: .7 }
.arenite-plan .box:hover, .arenite-plan .layer:hover { stroke: #000; stroke-width: 1.5 }
.arenite-plan .lens { fill: #e9f2fb; stroke: #a9c8e6 }
.arenite-plan .frame { fill: #f6f9fc; stroke: #a9c8e6 }
.arenite-plan .axis { stroke: #888 } .arenite-plan .grid { stroke: #dde3ea }
.arenite-plan .bound { stroke: #000; stroke-width: 1.5; stroke-dasharray: 6 4 }
.arenite-plan .fullest { stroke: #c0262d; stroke-width: 1.5; stroke-dasharray: 2 3 }
.arenite-plan { print-color-adjust: exact; -webkit-print-color-adjust: exact }
"""


def draw(plan: MemoryPlan, max_boxes: int | None = None) -> str:
    """The SVG text of a plan."""
    return _Picture(plan, MAX_BOXES if max_boxes is None else max_boxes).text()


def region_meaning(region: Region) -> str:
    """What a region has, in words."""
    is_uploaded = region.name == "mapped" and region.device != HOST
    return UPLOADED if is_uploaded else REGION_MEANINGS[region.name]


class _Picture:
    """The parts from the top down; `y` is how far down it is drawn."""

    def __init__(self, plan: MemoryPlan, max_boxes: int) -> None:
        self.plan = plan
        self.max_boxes = max_boxes
        self.owners: dict[str, list[Slot]] = {name: [] for name in plan.regions}
        for slot in plan.slots.values():
            if slot.alias_of is None and slot.region in self.owners:
                self.owners[slot.region].append(slot)
        self.kinds: list[tuple[str, str, list[Slot]]] = []  # colour, name and values of each
        self.lines: list[tuple[str, str, str]] = []  # style, name and amount of each
        self.note = ""
        self.lens_at = 0
        self.canvas = Canvas()
        self.y = 0.0

    def text(self) -> str:
        title, second = self._titles()
        self.canvas.write(title, MARGIN, 30, "title")
        self.canvas.write(second, MARGIN, 52, "soft")
        self.y = 68
        regions = [self.plan.regions[name] for name in RESIDENT_REGIONS if name in self.owners]
        regions = [region for region in regions if region.nbytes]
        timed = [region for region in regions if self._is_timed(region)]
        stretches = self._bar(regions) if regions != timed[:1] else {}
        for region in timed:
            self._panel(region, stretches.get(region.name))
        self._legend([*regions, *(r for r in self.plan.regions.values() if r.name == "source")])
        height = round(self.y + 12)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="arenite-plan" role="img" '
                f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
                'style="max-width: 100%; height: auto">',
                f"<title>{escape(title)}</title><style>{STYLE}</style>",
                f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
                *self.canvas.parts,
                "</svg>\n",
            ]
        )

    def _titles(self) -> tuple[str, str]:
        plan = self.plan
        total = readable_nbytes(plan.total_nbytes)
        title = f"{total} of memory for {_count(len(plan.slots), 'value')}"
        facts = [f"arena {readable_nbytes(plan.peak_nbytes)}"]
        facts.append(f"{plan.ratio:.3f} times the lower bound")
        if plan.capacity is not None:
            facts[0] += f" of {readable_nbytes(plan.capacity)} allowed"
        if plan.reused_nbytes > 0:
            facts.append(f"reuse saves {readable_nbytes(plan.reused_nbytes)}")
        return title, "; ".join(facts)

    def _is_timed(self, region: Region) -> bool:
        """Whether it takes time to draw a region: values come and go."""
        if region.name not in ARENA_REGIONS:
            return False
        whole = {slot.lifetime for slot in self.owners[region.name]}
        return region.name == "work" or len(whole) > 1

    # The bar.

    def _bar(self, regions: list[Region]) -> dict[str, tuple[float, float]]:
        """All regions to scale; from where to where each is drawn."""
        total = sum(region.nbytes for region in regions)
        x = Scale(0, total, MARGIN, RIGHT)
        top, bottom = self.y + 22, self.y + 22 + BAR_HEIGHT
        stretches: dict[str, tuple[float, float]] = {}
        at, free = 0, 0.0  # bytes so far, and from where on there is room for a name
        for region in regions:
            left, right = x(at), max(x(at + region.nbytes), x(at) + 1)
            stretches[region.name] = (left, right)
            name = f"{region.name} {readable_nbytes(region.nbytes)}"
            if left >= free and left + len(name) * LETTER <= RIGHT:
                self.canvas.write(name, left, self.y + 15, "head")
                free = left + len(name) * LETTER + 10
            if self._is_timed(region) or right - left < LEAST_LAYERS:
                hover = f"{name}: {region_meaning(region)}"
                self.canvas.rect(
                    left, top, right, bottom, REGION_COLOURS[region.name][0], hover, "layer"
                )
            else:
                self._layers(region, x, at, top, bottom)
            at += region.nbytes
        self.lens_at = len(self.canvas.parts)
        for nbytes, text in byte_marks(total, 8):
            self.canvas.mark(x(nbytes), bottom, text)
        self.y = bottom + 26
        return stretches

    def _layers(self, region: Region, x: Scale, at: int, top: float, bottom: float) -> None:
        """A region whose values stay: runs of layers side by side."""
        colours = REGION_COLOURS[region.name]
        whole = max(x(at + region.nbytes), x(at) + 1)
        self.canvas.rect(x(at), top, whole, bottom, colours[0], "", "edge")
        for run in few_runs(runs_of(self.owners[region.name], " packed"), MAX_RUNS):
            layers = run.groups if len(run.groups) <= MAX_LAYERS else [run.joined()]
            begin = at
            for k, layer in enumerate(layers):
                end = at + layer.nbytes
                hover = _layer_hover(layer, region.name, self.plan.details)
                self.canvas.rect(x(at), top, x(end), bottom, colours[k % 2], hover, "layer")
                at = end
            left, right = x(begin), x(at)
            self.canvas.line("edge", left, top, left, bottom)
            middle = (top + bottom) / 2
            size = readable_nbytes(run.nbytes)
            if len(run.groups) > 1:
                size += f" in {len(run.groups)}"
            self.canvas.inside(run.label, left, right, middle - 3)
            self.canvas.inside(size, left, right, middle + 14)

    # The lens.

    def _panel(self, region: Region, stretch: tuple[float, float] | None) -> None:
        """Time across, bytes up, one box a value."""
        slots = self.owners[region.name]
        right = RIGHT
        top = self.y + 26
        if stretch is not None:
            top += LENS_HEIGHT
            corners = (
                f"{stretch[0]:.1f},{self.y - 26:.1f} {stretch[1]:.1f},{self.y - 26:.1f} "
                f"{right},{top - 22:.1f} {right},{top:.1f} {LEFT},{top:.1f} {LEFT},{top - 22:.1f}"
            )
            # Below the figures of the bar, which it crosses.
            self.canvas.parts.insert(self.lens_at, f'<polygon class="lens" points="{corners}"/>')
        bottom = top + PANEL_HEIGHT
        live = [slot.lifetime for slot in slots if slot.lifetime.start < slot.lifetime.end]
        first = min((span.start for span in live), default=0)
        last = max((span.end for span in live), default=1)
        x = Scale(first, last, LEFT, right)
        y = Scale(region.base, region.base + region.nbytes, bottom, top)
        name = f"{region.name} {readable_nbytes(region.nbytes)}: {region_meaning(region)}"
        self.canvas.write(name, LEFT + 4, top - 7, "head")
        self.canvas.rect(LEFT, top, right, bottom, "#f6f9fc", "", "frame")
        for nbytes, text in byte_marks(region.nbytes, 6):
            at = y(region.base + nbytes)
            self.canvas.line("grid", LEFT, at, right, at)
            self.canvas.write(text, LEFT - 6, at + 4.5, "small", "end")
        for tick in tick_marks(first, last, 8):
            self.canvas.mark(x(tick), bottom, f"{tick:,}")
        self._boxes(slots, x, y)
        bound_at = y(region.base + region.lower_bound)
        self.canvas.line("bound", LEFT, bound_at, right, bound_at)
        bound = readable_nbytes(region.lower_bound)
        self.lines.append(("bound", f"lower bound of {region.name}", bound))
        if first <= self.plan.peak_tick <= last:
            at = x(self.plan.peak_tick)
            self.canvas.line("fullest", at, top, at, bottom)
            fullest = ("fullest", "the arena is fullest", f"tick {self.plan.peak_tick:,}")
            self.lines += [] if fullest in self.lines else [fullest]
        caption = "time in ticks: one launch after the other"
        self.canvas.write(caption, (LEFT + right) / 2, bottom + 37, "small", "middle")
        self.y = bottom + 46

    def _boxes(self, slots: list[Slot], x: Scale, y: Scale) -> None:
        kinds = kinds_of(slots)
        colours = dict(zip(kinds, KIND_COLOURS, strict=False))
        slots = [s for s in slots if s.capacity and s.lifetime.start < s.lifetime.end]
        by_area = sorted(slots, key=lambda s: -s.capacity * (s.lifetime.end - s.lifetime.start))
        shown = by_area[: self.max_boxes]
        for slot in shown:
            left, right = x(slot.lifetime.start), x(slot.lifetime.end)
            top, bottom = y(slot.end), y(slot.offset)
            colour = colours.get(kind_of(str(slot.id)), OTHER_COLOUR)
            if len(kinds) == 1:  # colours say nothing here, but where one box ends
                colour = SHADES[crc32(str(slot.id).encode("utf-8", "replace")) % len(SHADES)]
            # A border around a box of few pixels would be all there is to see of it.
            css = "box edge" if min(right - left, bottom - top) > 3 else "box"
            self.canvas.rect(
                left, top, right, bottom, colour, _slot_hover(slot, self.plan.details), css
            )
            if bottom - top >= 15:
                names = (str(slot.id), kind_of(str(slot.id)))
                room = (right - left - 6) / SMALL_LETTER
                name = next((name for name in names if len(name) <= room), "")
                css = "light" if colour in DARK_COLOURS else ""
                self.canvas.inside(name, left, right, (top + bottom) / 2 + 4, css)
        for kind, colour in colours.items():
            self.kinds.append((colour, kind, kinds[kind]))
        others = [slot for kind in kinds if kind not in colours for slot in kinds[kind]]
        if others:
            self.kinds.append((OTHER_COLOUR, "others", others))
        if len(shown) < len(slots):
            self.note = f"the largest {len(shown):,} are drawn"

    # The legend.

    def _legend(self, regions: list[Region]) -> None:
        """Regions to the left, what the colours of boxes are to the right."""
        left, middle, right = MARGIN, 436, RIGHT
        if not self.kinds:
            middle = right + 20
        if not regions:
            return
        top = self.y + 24
        self.canvas.write("regions", left, top, "head")
        for k, region in enumerate(regions):
            y = top + (k + 1) * ROW_HEIGHT
            text = f"{region.name}: {region_meaning(region)}"
            size = readable_nbytes(region.nbytes)
            self._entry(REGION_COLOURS[region.name][1], text, size, left, middle - 20, y)
        if self.kinds:
            self.canvas.write("largest in one piece", right, top, "small soft", "end")
            self.canvas.write("values that come and go", middle, top, "head")
        for k, (colour, kind, slots) in enumerate(self.kinds):
            y = top + (k + 1) * ROW_HEIGHT
            size = readable_nbytes(max(slot.capacity for slot in slots))
            self._entry(colour, f"{kind} ({len(slots):,})", size, middle, right, y)
        for k, (css, text, size) in enumerate(self.lines, len(self.kinds)):
            y = top + (k + 1) * ROW_HEIGHT
            self.canvas.line(css, middle - 1, y - 5, middle + 14, y - 5)
            self._entry("none", text, size, middle, right, y)
        self.y = top + max(len(regions), len(self.kinds) + len(self.lines)) * ROW_HEIGHT
        if self.note:
            self.y += ROW_HEIGHT
            self.canvas.write(self.note, middle, self.y, "small soft")

    def _entry(
        self, colour: str, text: str, size: str, left: float, right: float, y: float
    ) -> None:
        self.canvas.rect(left, y - 11, left + 12, y + 1, colour, "", "key")
        room = int((right - left - 18 - (len(size) + 1) * SMALL_LETTER) / SMALL_LETTER)
        self.canvas.write(cut(text, room), left + 18, y, "small")
        self.canvas.write(size, right, y, "small", "end")


def _layer_hover(layer: Group, region: str, details: Mapping[ValueId, str]) -> str:
    if len(layer.slots) == 1:
        return _slot_hover(layer.slots[0], details)
    name = cut(layer.name, MAX_LETTERS)
    lines = [f"{name} ({region}): {_exact(layer.nbytes)} in {len(layer.slots):,} values"]
    for slot in sorted(layer.slots, key=lambda slot: -slot.capacity)[:MAX_NAMED]:
        known = [readable_nbytes(slot.nbytes), *([details[slot.id]] if slot.id in details else [])]
        lines.append(f"{cut(str(slot.id), MAX_LETTERS)}: {', '.join(known)}")
    if len(layer.slots) > MAX_NAMED:
        lines.append(f"and {len(layer.slots) - MAX_NAMED:,} smaller ones")
    return "\n".join(lines)


def _slot_hover(slot: Slot, details: Mapping[ValueId, str]) -> str:
    lines = [f"{cut(str(slot.id), MAX_LETTERS)} ({slot.region})"]
    if slot.id in details:
        lines.append(cut(details[slot.id], MAX_LETTERS))
    lines.append(f"{_exact(slot.nbytes)} at {slot.offset:,}")
    lines.append(f"live [{slot.lifetime.start:,}, {slot.lifetime.end:,})")
    if slot.took_over is not None:
        lines.append(f"took over {cut(str(slot.took_over), MAX_LETTERS)}")
    return "\n".join(lines)


def _exact(nbytes: int) -> str:
    text = readable_nbytes(nbytes)
    return text if nbytes < 1024 else f"{text} ({nbytes:,} bytes)"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"

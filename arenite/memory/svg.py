"""A plan as a picture: time across, bytes up, one box a value; peak and lower bound as lines.

The text is plain SVG without scripts; hovering over a box names the value. Ids come from files of
unknown origin, so every one is escaped and stripped of what XML forbids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from arenite.device.allocator import readable_nbytes
from arenite.memory.values import ARENA_REGIONS

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan, Slot

#: Boxes drawn at the most; the smallest are left out and the caption says so.
MAX_BOXES = 20_000

WIDTH, HEIGHT = 1100, 640
LEFT, RIGHT, TOP, BOTTOM = 96, 24, 64, 56
HUES = {"packed": 28, "state": 282, "work": 204}

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 }
.box { stroke: #fff; stroke-width: .6 } .box:hover { stroke: #000; stroke-width: 1.5 }
.name { font-size: 10px; fill: #fff; pointer-events: none }
.axis { stroke: #bbb } .grid { stroke: #eee }
.peak { stroke: #c0262d; stroke-width: 1.5 }
.bound { stroke: #000; stroke-width: 1.5; stroke-dasharray: 6 4 }
.halo { stroke: #fff; stroke-width: 4 }
"""


def draw(plan: MemoryPlan) -> str:
    """The SVG text of the plan's arena."""
    slots = [s for s in plan.slots.values() if s.region in ARENA_REGIONS and s.alias_of is None]
    shown = sorted(slots, key=lambda s: -s.capacity * (s.lifetime.end - s.lifetime.start))
    shown = shown[:MAX_BOXES]
    picture = _Picture(plan, slots)
    title = (
        f"{len(slots)} values in {readable_nbytes(plan.peak_nbytes)}: {plan.ratio:.3f} times the "
        f"lower bound of {readable_nbytes(plan.lower_bound)}"
    )
    if len(shown) < len(slots):
        title += f" (the largest {len(shown)} are drawn)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
        *picture.axes(),
        *(picture.box(slot) for slot in shown),
        *picture.lines(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Picture:
    """Scales from ticks and bytes to pixels."""

    def __init__(self, plan: MemoryPlan, slots: list[Slot]) -> None:
        self.plan = plan
        self.first = min((s.lifetime.start for s in slots), default=0)
        self.last = max((s.lifetime.end for s in slots), default=1)
        self.high = max(plan.peak_nbytes, plan.lower_bound, plan.capacity or 0, 1) * 1.04

    def x(self, tick: int) -> float:
        share = (tick - self.first) / max(1, self.last - self.first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, nbytes: float) -> float:
        return HEIGHT - BOTTOM - nbytes / self.high * (HEIGHT - TOP - BOTTOM)

    def box(self, slot: Slot) -> str:
        left, right = self.x(slot.lifetime.start), self.x(slot.lifetime.end)
        top, bottom = self.y(slot.end), self.y(slot.offset)
        width, height = max(right - left, 0.5), max(bottom - top, 0.3)
        name = escape(str(slot.id))
        shade = 38 + crc32(str(slot.id).encode("utf-8", "replace")) % 24
        hover = (
            f"{name} ({slot.region}): {slot.nbytes} bytes at {slot.offset}, "
            f"live [{slot.lifetime.start}, {slot.lifetime.end})"
        )
        if slot.took_over is not None:
            hover += f", took over {escape(str(slot.took_over))}"
        text = (
            f'<rect class="box" x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}" fill="hsl({HUES[slot.region]} 52% {shade}%)">'
            f"<title>{hover}</title></rect>"
        )
        if height >= 13 and width >= 7 * min(len(str(slot.id)), 24) + 6:
            text += (
                f'<text class="name" x="{left + 4:.2f}" y="{(top + bottom) / 2 + 3.5:.2f}">'
                f"{escape(str(slot.id)[:24])}</text>"
            )
        return text

    def axes(self) -> list[str]:
        parts = []
        for k in range(6):
            nbytes = int(self.high / 1.04 * k / 5)
            y = self.y(nbytes)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{readable_nbytes(nbytes)}</text>"
            )
            tick = self.first + (self.last - self.first) * k // 5
            anchor = "end" if k == 5 else "middle" if k else "start"
            parts.append(
                f'<text x="{self.x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" '
                f'text-anchor="{anchor}">{tick}</text>'
            )
        bottom = HEIGHT - BOTTOM
        parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" '
            'text-anchor="middle">time in ticks</text>'
        )
        return parts

    def lines(self) -> list[str]:
        """Peak, lower bound and capacity, named left and right above the boxes."""
        marks = [("peak", "peak", self.plan.peak_nbytes, LEFT, "start")]
        marks.append(("bound", "lower bound", self.plan.lower_bound, WIDTH - RIGHT, "end"))
        if self.plan.capacity is not None:
            middle = (LEFT + WIDTH - RIGHT) // 2
            marks.append(("axis", "capacity", self.plan.capacity, middle, "middle"))
        parts = []
        for css, name, nbytes, x, anchor in marks:
            y = self.y(nbytes)
            line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
            parts.append(
                f'<line class="halo" {line}/><line class="{css}" {line}/>'
                f'<text x="{x}" y="{min(y, self.y(self.plan.peak_nbytes)) - 5:.1f}" '
                f'text-anchor="{anchor}">{name} {nbytes}</text>'
            )
        return parts


def escape(text: str) -> str:
    """Text that is safe inside XML: no mark-up, no control characters, no lone surrogates."""
    clean = "".join(
        c if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF) else "\ufffd"
        for c in text
        if ord(c) not in (0xFFFE, 0xFFFF)
    )
    return (
        clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )

"""Draws `docs/architecture.svg`, the map of the house.

    .venv/bin/python docs/make_map.py

Boxes are rooms, or steps with the room they belong to; arrows carry the record that is handed on.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parent / "architecture.svg"

WIDTH, HEIGHT = 980, 820
INK, GREY, RULE = "#1f2328", "#59636e", "#8c959f"
NEUTRAL, PLACES, SHARED, DEVICES, RUNS = "#eef4fb", "#eef7ee", "#fdf3e1", "#f6eefb", "#fbeeee"


class Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    fill: str = NEUTRAL
    is_dashed: bool = False

    def svg(self) -> str:
        dash = ' stroke-dasharray="5 4"' if self.is_dashed else ""
        middle = self.x + self.width / 2
        top = self.y + self.height / 2 - 8 * len(self.lines)
        parts = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" '
            f'fill="{self.fill}" stroke="{RULE}"{dash}/>',
            text(middle, top + 5, self.title, is_bold=True),
        ]
        parts += [
            text(middle, top + 22 + 16 * k, line, size=12, colour=GREY)
            for k, line in enumerate(self.lines)
        ]
        return "\n".join(parts)


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 14,
    is_bold: bool = False,
    colour: str = INK,
    anchor: str = "middle",
) -> str:
    weight = ' font-weight="600"' if is_bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )


def arrow(*points: tuple[int, int], label: str = "", at: tuple[int, int] | None = None) -> str:
    """A line through points, with a head at its end; the label stands at `at`."""
    path = "M" + " L".join(f"{x} {y}" for x, y in points)
    line = f'<path d="{path}" fill="none" stroke="{INK}" marker-end="url(#head)"/>'
    if not label or at is None:
        return line
    return "\n".join([line, text(*at, label, size=12)])


_SHARED = (
    "Backend · Options · Launch · ValueSpec · Compiled · Loaded: what back ends and runtime share"
)

BOXES = [
    Box(20, 20, 300, 56, "a function of tensors", ("tensor/: traced once, nothing runs",)),
    Box(350, 20, 300, 56, "a model file", ("frontends/: mapped, every count checked",)),
    Box(20, 136, 170, 72, "ir/", ("Graph of Nodes;", "OpDef: what an op is")),
    Box(265, 136, 170, 72, "passes/", ("neutral, then the", "back end's own")),
    Box(510, 136, 170, 72, "schedule/", ("fuses; says why a", "kernel ends")),
    Box(780, 136, 180, 72, "codegen/", ("loop IR, checked;", "maths as expressions")),
    Box(
        *(20, 278, 300, 72, "memory/"),
        ("MemoryPlan: every byte placed;", "a validator proves it"),
        PLACES,
    ),
    Box(
        *(380, 278, 300, 72, "pipeline/"),
        ("values, steps, lifetimes;", "the whole order of things"),
    ),
    Box(20, 398, 940, 52, "program/", (_SHARED,), SHARED),
    Box(20, 486, 290, 66, "backends/cpu", ("LLVM, micro-kernels,", "team, native driver"), DEVICES),
    Box(345, 486, 190, 66, "backends/c", ("C11 source,", "the system's compiler"), DEVICES),
    Box(570, 486, 190, 66, "backends/webgpu", ("WGSL,", "device memory"), DEVICES),
    Box(
        *(795, 486, 165, 66, "the next one"),
        ("a folder, a name,", "a file in device/"),
        DEVICES,
        is_dashed=True,
    ),
    Box(
        *(20, 600, 300, 80, "hazards/"),
        ("waits from byte ranges on final", "addresses; a verifier proves them"),
        PLACES,
    ),
    Box(
        *(380, 600, 300, 80, "runtime/"),
        ("Executable: call it with arrays;", "states, profile, checks"),
        RUNS,
    ),
    Box(780, 600, 180, 80, "results", ("new arrays,", "or those of out="), RUNS),
    Box(
        *(20, 734, 220, 66, "model/ · generate/ · serve/"),
        ("a file as an object: plan it,", "compile it, talk with it"),
        RUNS,
    ),
    Box(
        *(260, 734, 220, 66, "onnxruntime/"),
        ("the same for programs that", "know ONNX Runtime"),
        RUNS,
    ),
    Box(500, 734, 220, 66, "show/", ("tables, pictures, traces,", "the page of a plan"), SHARED),
    Box(740, 734, 220, 66, "cli/ · fetch/", ("the arenite command;", "models by name"), SHARED),
]

ARROWS = [
    arrow((80, 76), (80, 134), label="Graph", at=(56, 108)),
    arrow((500, 76), (500, 106), (130, 106), (130, 134), label="Graph", at=(410, 100)),
    arrow((190, 172), (263, 172), label="Graph", at=(227, 164)),
    arrow((435, 172), (508, 172), label="Graph", at=(472, 164)),
    arrow((680, 172), (778, 172), label="Kernel", at=(729, 164)),
    arrow((870, 208), (870, 396), label="Built", at=(893, 300)),
    arrow((595, 208), (595, 276), label="Schedule", at=(627, 246)),
    arrow((800, 208), (800, 250), (640, 250), (640, 276), label="scratch", at=(735, 244)),
    arrow((380, 304), (322, 304), label="Value", at=(351, 297)),
    arrow((320, 330), (378, 330), label="plan", at=(350, 346)),
    arrow((530, 350), (530, 396), label="Launch, MemoryPlan", at=(598, 378)),
    arrow((165, 450), (165, 484), label="build, compile, load", at=(228, 472)),
    arrow((440, 450), (440, 484)),
    arrow((665, 450), (665, 484)),
    arrow((878, 450), (878, 484)),
    arrow((270, 552), (270, 576), (420, 576), (420, 598), label="Loaded", at=(320, 570)),
    arrow((470, 552), (470, 598)),
    arrow((640, 552), (640, 598)),
    arrow((120, 552), (120, 598), label="addresses", at=(155, 580)),
    arrow((320, 640), (378, 640), label="proof", at=(350, 633)),
    arrow((680, 640), (778, 640)),
    arrow((410, 680), (410, 708), (130, 708), (130, 732), label="Executable", at=(300, 702)),
    arrow((370, 708), (370, 732)),
    arrow((610, 680), (610, 732), label="plan, kernels, times", at=(674, 712)),
]


def picture() -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif">'
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>'
    )
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    boxes = [box.svg() for box in BOXES]
    return "\n".join([head, marker, ground, *ARROWS, *boxes, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())

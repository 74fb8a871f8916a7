"""NAME.h, what a caller of an exported program sees; NAME_weights.c, its weights as an array."""

from __future__ import annotations

from collections.abc import Iterator

from arenite.backends.c.c_types import Names, commented
from arenite.backends.c.kernel import wrapped
from arenite.backends.c.layout import ALIGNMENT, ERRORS, Layout
from arenite.ir.dim import bounds

#: Bytes in a line of an array.
_A_LINE = 16


def header(layout: Layout) -> str:
    """NAME.h."""
    options, macro, prefix = layout.options, layout.macro, layout.prefix
    guard = f"{macro}_H"
    lines = [
        f"/* {options.name}: a program over one planned block of memory.",
        "",
        *_about(layout),
        "*/",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {macro}_ARENA_BYTES {layout.arena_nbytes}",
        f"#define {macro}_ALIGNMENT {ALIGNMENT}",
    ]
    if layout.offsets and options.weights != "table":
        lines.append(f"#define {macro}_WEIGHTS_BYTES {layout.weights_nbytes}")
    names = Names()
    for name, number in zip(layout.outputs, layout.compiled.outputs, strict=True):
        nbytes = bounds(layout.compiled.values[number].nbytes)[1]
        output = names.take(f"{macro}_{name.upper()}_BYTES")
        lines.append(f"#define {output} {nbytes}  /* at the most */")
    lines += ["", "/* What functions return; 0 is success. */", "enum {"]
    lines += [
        f"    {macro}_{name} = {code},  /* {text} */"
        for name, (code, text) in ERRORS.items()
        if name != "CANCELLED" or options.cancellable
    ]
    lines += ["};", ""]
    if options.memory == "caller":
        has_pointer = options.weights == "table" or (layout.offsets and options.weights == "file")
        weights = "const void *const *" if options.weights == "table" else "const unsigned char *"
        lines += [
            "/* One program in memory of the caller; there may be several. */",
            "typedef struct {",
            "    unsigned char *arena;",
            *([f"    {weights}weights;"] if has_pointer else []),
            *(["    volatile int cancelled;"] if options.cancellable else []),
            "    int status;",
            f"}} {prefix}_program;",
            "",
        ]
    if layout.offsets and options.weights == "array":
        lines += [f"extern const unsigned char {prefix}_weights[{macro}_WEIGHTS_BYTES];", ""]
    lines += ["/* Once, before anything else. */"]
    lines += wrapped(f"int {prefix}_init(", layout.init_signature(), ");")
    lines += ["", "/* All states zero, as before the first run; after a run that failed, too. */"]
    lines += wrapped(f"int {prefix}_reset(", layout.with_self([]), ");")
    lines += ["", "/* Arrays lie in C order, begin at a multiple of 8 and do not overlap."]
    lines += [commented(f"   {one.name}: {one.about}") for one in layout.arguments()]
    lines[-1] += " */"
    lines += wrapped(f"int {prefix}_run(", layout.run_signature(), ");")
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _about(layout: Layout) -> list[str]:
    plan = layout.compiled.plan
    lines = ["   memory, in bytes:"]
    for region in plan.regions.values():
        if region.in_arena:
            lines.append(f"   {region.nbytes:>12}  {region.name}, in the arena")
    if layout.options.weights != "table":
        lines.append(f"   {layout.weights_nbytes:>12}  weights")
    return lines


def weights_source(layout: Layout, raw: bytes) -> Iterator[str]:
    """NAME_weights.c, in pieces."""
    yield f'#include "{layout.options.name}.h"\n\n'
    yield f"_Alignas({ALIGNMENT}) const unsigned char {layout.prefix}_weights"
    yield f"[{layout.macro}_WEIGHTS_BYTES] = {{\n"
    for start in range(0, len(raw), _A_LINE):
        yield "    " + ",".join(map(str, raw[start : start + _A_LINE])) + ",\n"
    yield "};\n"

"""Launches that wait for the same become one: their shaders, joined.

In: shaders whose groups have as many threads. Out: one shader, whose groups do the work of the
first, then of the second, and so on; its parameters are theirs, one after another. A dispatch that
waits costs 2 µs on the device and as much on the host, whatever it does (docs/decisions/0006).

    q    tiles 0..63     ┐
    k    tiles 0..15     ├─>   tiles 0..95: tile 70 is tile 6 of k
    v    tiles 0..15     ┘

Names of each part end in its number. Shared memory that is declared alike is the same: a group is
of one part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from arenite.backends.webgpu.shader import Shader

#: Shaders in one.
MAX_PARTS = 4

_STRUCT = re.compile(r"struct Parameters \{ (.*?) \}\n")
_BINDING = "@group(0) @binding(0) var<uniform> parameters: Parameters;\n"
_DECLARED = re.compile(r"^(?:fn|struct|var<[^>]*>|const|alias) (\w+)", re.MULTILINE)
_SHARED = re.compile(r"^var<workgroup> (\w+): (.*);$", re.MULTILINE)
_MAIN = re.compile(r"@compute @workgroup_size\(\d+\)\s*fn main\((.*?)\) \{", re.DOTALL)
_BUILTIN = re.compile(r"@builtin\(\w+\)\s*")
_ARRAY = re.compile(r"array<(.*), (\d+)u?>")
_SCALAR = re.compile(r"(?:atomic<)?[fui]32>?")
_VECTOR = re.compile(r"vec([234])(?:[fui]|<[fui]32>)")


def can_be_joined(shaders: Sequence[Shader], shared_nbytes: int) -> bool:
    """Whether these fit one shader, with so much memory for a group."""
    if not 1 < len(shaders) <= MAX_PARTS or len({one.threads for one in shaders}) > 1:
        return False
    if any(one.following is not None for one in shaders):
        return False
    mains = [_MAIN.search(one.text) for one in shaders]
    if None in mains or not all(_STRUCT.match(one.text) for one in shaders):
        return False
    if len({main[1] for main in mains if main is not None}) > 1:
        return False
    declared = {found.groups() for one in shaders for found in _SHARED.finditer(one.text)}
    sizes = [_nbytes(kind) for _, kind in declared]
    return all(size is not None for size in sizes) and sum(filter(None, sizes)) <= shared_nbytes


@lru_cache(maxsize=256)
def joined(shaders: tuple[Shader, ...], stride_words: int) -> Shader:
    """One shader of several, whose parameters begin so many words apart."""
    shared = [set(_SHARED.findall(one.text)) for one in shaders]
    common = set.intersection(*shared)
    fields: list[str] = []
    texts: list[str] = []
    for number, one in enumerate(shaders):
        text = _STRUCT.sub("", one.text, count=1).replace(_BINDING, "", 1)
        own = _fields(one, number)
        fields += own
        if number + 1 < len(shaders):
            fields += [f"unused{number}_{k}: u32" for k in range(stride_words - len(own))]
        text = _renamed(text, one, number, {name for name, _ in common})
        if number:
            for name, kind in common:
                text = text.replace(f"var<workgroup> {name}: {kind};\n", "")
        texts.append(text.strip())
    main = _MAIN.search(shaders[0].text)
    assert main is not None
    names = [name.split(":")[0].strip() for name in _BUILTIN.sub("", main[1]).split(",")]
    lines = [f"@compute @workgroup_size({shaders[0].threads})", f"fn main({main[1]}) {{"]
    lines.append("  var tile = group.x + group.y * groups.x;")
    for number in range(len(shaders)):
        given = [_GIVEN.get(name, name) for name in names]
        tiles = f"u32(parameters.tiles_p{number})"
        lines.append(f"  if (tile < {tiles}) {{ main_p{number}({', '.join(given)}); return; }}")
        lines.append(f"  tile -= {tiles};")
    struct = f"struct Parameters {{ {', '.join(fields)} }}\n"
    return Shader(
        "kernel",
        "\n".join([struct + _BINDING.rstrip(), *texts, *lines, "}", ""]),
        shaders[0].threads,
        tuple(
            (f"{name}_p{k}", bits, role)
            for k, one in enumerate(shaders)
            for name, bits, role in one.arrays
        ),
        tuple(f"{name}_p{k}" for k, one in enumerate(shaders) for name in one.atomic),
        0,
        any(one.requires for one in shaders),
        tuple(f"{name}_p{k}" for k, one in enumerate(shaders) for name in one.wide),
        tuple(dict.fromkeys(team for one in shaders for team in one.teams)),
        is_proven=all(one.is_proven for one in shaders),
    )


#: What a part is told of where its group stands.
_GIVEN = {"group": "vec3u(tile, 0u, 0u)", "groups": "vec3u(1u, 1u, 1u)"}


def _fields(shader: Shader, number: int) -> list[str]:
    """The parameters of a part, by names of its own."""
    found = _STRUCT.match(shader.text)
    assert found is not None
    own = []
    for field in found[1].split(", "):
        name, kind = field.split(": ")
        own.append(f"{_field(name, shader, number)}: {kind}")
    return own


def _field(name: str, shader: Shader, number: int) -> str:
    stem = name.removesuffix("_at")
    is_place = name.endswith("_at") and any(stem == array for array, _, _ in shader.arrays)
    return f"{stem}_p{number}_at" if is_place else f"{name}_p{number}"


def _renamed(text: str, shader: Shader, number: int, kept: set[str]) -> str:
    declared = {name for name in _DECLARED.findall(text) if name not in {*kept, "main"}}
    arrays = [name for name, _, _ in shader.arrays]
    accessor = re.compile(rf"\b({'|'.join(map(re.escape, arrays))})_(word|put|four)\b")
    text = accessor.sub(rf"\1_p{number}_\2", text)
    text = re.sub(
        r"\bparameters\.(\w+)",
        lambda found: f"parameters.{_field(found[1], shader, number)}",
        text,
    )
    if declared:
        names = re.compile(rf"(?<!\.)\b({'|'.join(map(re.escape, sorted(declared)))})\b")
        text = names.sub(rf"\1_p{number}", text)
    return _MAIN.sub(
        lambda found: f"fn main_p{number}({_BUILTIN.sub('', found[1])}) {{", text, count=1
    )


def _nbytes(kind: str) -> int | None:
    """Of an array in shared memory; None for what is not known."""
    count = 1
    found = _ARRAY.fullmatch(kind)
    while found is not None:
        kind, count = found[1], count * int(found[2])
        found = _ARRAY.fullmatch(kind)
    if _SCALAR.fullmatch(kind):
        return 4 * count
    vector = _VECTOR.fullmatch(kind)
    return None if vector is None else 4 * count * (2 if vector[1] == "2" else 4)

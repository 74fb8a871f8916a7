"""Shader: the WGSL of a kernel, and how its arrays are bound once it is known where they lie.

In: text that knows arrays by functions, and the region of each array. Out: whole modules. A region
is one buffer of the device and one binding, however many arrays lie in it, so that two that share
bytes are seen as what they are; where an array begins is a parameter, counted in words.

    binding 0   parameters: where each array begins, sizes, tiles, where the error goes, and a 0
    binding 1   error words, one a launch
    binding 2.. the regions a launch uses, in the order they are first used
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from arenite.backends.webgpu.reductions import team_texts

#: By the types in a text that need them.
_FEATURES = {"shader-int64": "i64|u64", "shader-f64": "f64"}

#: The first binding of a region.
FIRST_REGION = 2


@dataclass(frozen=True, slots=True)
class Shader:
    """`arrays` are (name, bits of an element, role); `atomic` names those of which less than whole
    words are stored, `wide` those of which four words are read at once. `teams` are the numbers of
    lanes that are summed over; accesses of what `is_proven` are not checked by the device.
    `smaller` are (number of a size, most, shader): the first of which
    the size is no more than that is taken instead. `following` is dispatched behind it, bound to
    the same and with as many groups."""

    name: str
    text: str
    threads: int
    arrays: tuple[tuple[str, int, str], ...]
    atomic: tuple[str, ...]
    n_sizes: int
    requires: bool
    wide: tuple[str, ...] = ()
    teams: tuple[int, ...] = ()
    is_proven: bool = False
    smaller: tuple[tuple[int, int, Shader], ...] = ()
    following: Shader | None = None

    def of_sizes(self, sizes: Sequence[int]) -> Shader:
        """The shader for a launch of these sizes."""
        fitting = (one for size, most, one in self.smaller if sizes[size] <= most)
        smaller = next(fitting, None)
        return self if smaller is None else smaller.of_sizes(sizes)

    def every(self) -> Iterator[Shader]:
        """It, those that may be taken instead, and those that follow."""
        yield self
        for other in (*(one for _, _, one in self.smaller), self.following):
            if other is not None:
                yield from other.every()

    def nameless(self) -> Shader:
        """The same for any kernel."""
        others = tuple((size, most, one.nameless()) for size, most, one in self.smaller)
        following = None if self.following is None else self.following.nameless()
        return replace(self, name="kernel", smaller=others, following=following)

    @property
    def n_parameters(self) -> int:
        return len(self.arrays) + self.n_sizes + 3

    @property
    def features(self) -> frozenset[str]:
        """What a device must have beyond WGSL's core."""
        return frozenset(
            feature
            for feature, types in _FEATURES.items()
            if re.search(rf"\b(?:{types})\b", self.text)
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Shader:
        arrays = tuple((str(name), int(bits), str(role)) for name, bits, role in data["arrays"])
        names = {name: tuple(data[name]) for name in ("atomic", "wide", "teams")}
        smaller = tuple((n, most, cls.from_json(one)) for n, most, one in data["smaller"])
        following = None if data["following"] is None else cls.from_json(data["following"])
        known = {"arrays": arrays, **names, "smaller": smaller, "following": following}
        return cls(**{**data, **known})

    def module(
        self, bindings: Sequence[Sequence[int]], read_only: Sequence[bool], subgroup: int = 0
    ) -> str:
        """The whole text, where array k lies in the region at `bindings[k]` (counted from 0), or in
        several one after another; of all some can only be read. Lanes of a subgroup, if all have so
        many, are summed at once."""
        atomic = {
            binding
            for (name, _, _), own in zip(self.arrays, bindings, strict=True)
            for binding in own
            if name in self.atomic
        }
        in_fours = {
            binding
            for (name, _, _), own in zip(self.arrays, bindings, strict=True)
            for binding in own
            if name in self.wide
        } - atomic
        lines = []
        for number, is_read_only in enumerate(read_only):
            access = "read" if is_read_only else "read_write"
            word = "vec4<u32>" if number in in_fours else "u32"
            word = "atomic<u32>" if number in atomic else word
            lines.append(
                f"@group(0) @binding({FIRST_REGION + number}) "
                f"var<storage, {access}> region{number}: array<{word}>;"
            )
        for (name, bits, role), (number, *rest) in zip(self.arrays, bindings, strict=True):
            kind = "atomic" if number in atomic else "fours" if number in in_fours else ""
            if rest:
                own = [f"region{one}" for one in (number, *rest)]
                lines += _spread(name, own, kind, has_fours=name in self.wide)
                continue
            lines += _access(name, bits, role, f"region{number}", kind)
            if name in self.wide:
                lines.append(_four_words(name, f"region{number}", kind))
        for team in self.teams:
            lines += team_texts(team, self.threads, subgroup)
        if self.requires:
            lines += [
                "@group(0) @binding(1) var<storage, read_write> errors: array<atomic<u32>>;",
                "fn fail(at: u32, error: u32) { atomicMax(&errors[at], error); }",
            ]
        return "\n".join([self.text.rstrip(), *lines, ""])


def _access(name: str, bits: int, role: str, region: str, kind: str) -> list[str]:
    """How an array is read by word and stored to by element."""
    is_atomic = kind == "atomic"
    word = f"{region}[parameters.{name}_at + at]"
    if kind == "fours":
        word = f"{region}[(parameters.{name}_at + at) / 4u][(parameters.{name}_at + at) % 4u]"
    read = f"atomicLoad(&{word})" if is_atomic else word
    lines = [f"fn {name}_word(at: u32) -> u32 {{ return {read}; }}"]
    if role == "in":
        return lines
    if bits >= 32:  # two words of those of 64 are stored apart
        store = f"atomicStore(&{word}, bits);" if is_atomic else f"{word} = bits;"
        return [*lines, f"fn {name}_put(at: u32, bits: u32) {{ {store} }}"]
    # Neighbours in a word are other threads' business: only the element's own bits are touched.
    per_word, mask = 32 // bits, 2**bits - 1
    word = f"{region}[parameters.{name}_at + at / {per_word}u]"
    return [
        *lines,
        f"fn {name}_put(at: u32, bits: u32) {{",
        f"  let first = (at % {per_word}u) * {bits}u;",
        f"  atomicAnd(&{word}, ~({mask:#x}u << first));",
        f"  atomicOr(&{word}, (bits & {mask:#x}u) << first);",
        "}",
    ]


def _spread(name: str, regions: Sequence[str], kind: str, has_fours: bool) -> list[str]:
    """How an array that goes on from region to region is read, by word and, where it `has_fours`,
    four words at once; all regions but the last are full, of whole fours."""
    words, per_item = ("[i / 4u][i % 4u]", "4u") if kind == "fours" else ("[i]", "1u")
    lines = [
        f"fn {name}_word(at: u32) -> u32 {{ var i = parameters.{name}_at + at;",
        *_found(regions, words, per_item),
    ]
    if has_fours:
        lines += [
            f"fn {name}_four(at: u32) -> vec4<u32> {{ var i = parameters.{name}_at / 4u + at;",
            *_found(regions, "[i]", "1u"),
        ]
    return lines


def _found(regions: Sequence[str], item: str, per_item: str) -> Iterator[str]:
    """Return item `i` of regions one after another."""
    for region in regions[:-1]:
        yield f"  {{ let n = arrayLength(&{region}) * {per_item};"
        yield f"    if (i < n) {{ return {region}{item}; }} i -= n; }}"
    yield f"  return {regions[-1]}{item}; }}"


def _four_words(name: str, region: str, kind: str) -> str:
    """How an array that begins at a multiple of four words is read, four at once."""
    if kind == "fours":
        four = f"{region}[parameters.{name}_at / 4u + at]"
    else:
        words = (f"atomicLoad(&{region}[parameters.{name}_at + 4u * at + {k}u])" for k in range(4))
        four = f"vec4<u32>({', '.join(words)})"
    return f"fn {name}_four(at: u32) -> vec4<u32> {{ return {four}; }}"

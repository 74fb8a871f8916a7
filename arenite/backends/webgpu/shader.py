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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: By the types in a text that need them.
_FEATURES = {"shader-int64": "i64|u64", "shader-f64": "f64"}

#: The first binding of a region.
FIRST_REGION = 2


@dataclass(frozen=True, slots=True)
class Shader:
    """`arrays` are (name, bits of an element, role); `atomic` names those of which less than whole
    words are stored."""

    name: str
    text: str
    threads: int
    arrays: tuple[tuple[str, int, str], ...]
    atomic: tuple[str, ...]
    n_sizes: int
    requires: bool

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
        return cls(**{**data, "arrays": arrays, "atomic": tuple(data["atomic"])})

    def module(self, bindings: Sequence[int], read_only: Sequence[bool]) -> str:
        """The whole text, where array k lies in the region at `bindings[k]` (counted from 0), of
        which some can only be read."""
        atomic = {
            binding
            for (name, _, _), binding in zip(self.arrays, bindings, strict=True)
            if name in self.atomic
        }
        lines = []
        for number, is_read_only in enumerate(read_only):
            access = "read" if is_read_only else "read_write"
            word = "atomic<u32>" if number in atomic else "u32"
            lines.append(
                f"@group(0) @binding({FIRST_REGION + number}) "
                f"var<storage, {access}> region{number}: array<{word}>;"
            )
        for (name, bits, role), number in zip(self.arrays, bindings, strict=True):
            lines += _access(name, bits, role, f"region{number}", number in atomic)
        if self.requires:
            lines += [
                "@group(0) @binding(1) var<storage, read_write> errors: array<atomic<u32>>;",
                "fn fail(error: u32) { atomicMax(&errors[parameters.error_at], error); }",
            ]
        return "\n".join([self.text.rstrip(), *lines, ""])


def _access(name: str, bits: int, role: str, region: str, is_atomic: bool) -> list[str]:
    """How an array is read by word and stored to by element."""
    word = f"{region}[parameters.{name}_at + at]"
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

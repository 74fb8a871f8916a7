"""Kernels become linked code; what was compiled for one program serves the next.

In: the text of modules, best of one kernel each, and a target. Out: one CodeImage. The object of
each module is kept in the cache's folder `kernels`, under its text and all that makes an object of
it. What is damaged or of no use is compiled anew. Two who compile at once may compile the same
kernel, and keep the same bytes. Programs from the cache never come here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from arenite.codegen.identity import compiler_identity
from arenite.codegen.llvm import functions_defined
from arenite.codegen.target import Target
from arenite.errors import BadObject
from arenite.runtime import cache
from arenite.runtime.compile_pool import OnCompiled, compile_modules
from arenite.runtime.link import CodeImage, link_objects

_SECTION = "object"


def linked_kernels(
    modules: Sequence[str], target: Target, on_progress: OnCompiled | None = None
) -> CodeImage:
    """The code of these modules; raises CompileFailed, and BadObject where code can't be linked.

    `on_progress(done, total)` hears of modules, those that are kept counted as done.
    """
    keys = [_key(text, target) for text in modules]
    kept = _kept(keys)
    if not kept:
        return link_objects(_compiled(modules, keys, target, on_progress))
    new = [k for k, key in enumerate(keys) if key not in kept]

    def heard(done: int, _: int) -> None:
        if on_progress is not None:
            on_progress(len(modules) - len(new) + done, len(modules))

    heard(0, len(new))
    made = _compiled([modules[k] for k in new], [keys[k] for k in new], target, heard)
    objects = kept | dict(zip((keys[k] for k in new), made, strict=True))
    try:
        image = link_objects([objects[key] for key in keys])
    except BadObject:
        return _anew(modules, keys, target)
    wanted = {name for text in modules for name in functions_defined(text)}
    return image if wanted == {*image.entries} else _anew(modules, keys, target)


def _anew(modules: Sequence[str], keys: Sequence[str], target: Target) -> CodeImage:
    """As if nothing had been kept, since something of it is of no use."""
    return link_objects(_compiled(modules, keys, target, None))


def _compiled(
    modules: Sequence[str], keys: Sequence[str], target: Target, on_progress: OnCompiled | None
) -> list[bytes]:
    """The objects of these modules, kept from now on."""
    objects = compile_modules(modules, target, on_progress=on_progress)
    store = cache.kernels()
    if store is not None:
        pairs = zip(keys, objects, strict=True)
        store.put_all({key: {_SECTION: content} for key, content in pairs})
    return objects


def _kept(keys: Sequence[str]) -> dict[str, bytes]:
    """The objects that are kept under these keys."""
    store = cache.kernels()
    if store is None:
        return {}
    found = {key: store.get(key) for key in keys}
    return {
        key: bytes(sections[_SECTION])
        for key, sections in found.items()
        if sections is not None and _SECTION in sections
    }


def _key(text: str, target: Target) -> str:
    return cache.key_of("kernel", text, target.identity, compiler_identity(), _sources())


@lru_cache(maxsize=1)
def _sources() -> bytes:
    """Our own sources that make an object of a text."""
    from arenite.codegen import llvm

    try:
        with open(os.path.abspath(llvm.__file__), "rb") as file:
            return file.read()
    except OSError:
        return b""  # installed without sources: the version alone tells

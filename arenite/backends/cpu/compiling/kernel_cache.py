"""Kernels become linked code; what was compiled for one program serves the next.

In: the text of modules, best of one kernel each, and a target. Out: one CodeImage. Texts may come
one by one as they are made: those before are compiled meanwhile. The object of each module is kept
in the cache's folder `kernels`, under its text and all that makes an object of it. What is damaged
or of no use is compiled anew. Two who compile at once may compile the same kernel, and keep the
same bytes. Programs from the cache never come here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from arenite.backends.cpu.compiling import llvm
from arenite.backends.cpu.compiling.link import CodeImage, link_objects
from arenite.backends.cpu.compiling.pool import OnCompiled, compile_modules
from arenite.backends.cpu.identity import compiler_identity, sources
from arenite.backends.cpu.target import Target
from arenite.errors import BadObject
from arenite.program import cache

_SECTION = "object"


def linked_kernels(
    modules: Iterable[str], target: Target, on_progress: OnCompiled | None = None
) -> CodeImage:
    """The code of these modules; raises CompileFailed, and BadObject where code can't be linked.

    `on_progress(done, total)` hears of modules that have come so far, those that are kept counted
    as done.
    """
    texts: list[str] = []
    kept: dict[int, bytes] = {}
    n_compiled = 0

    def heard(done: int, _: int) -> None:
        nonlocal n_compiled
        n_compiled = done
        if on_progress is not None:
            on_progress(len(kept) + n_compiled, len(texts))

    def missing() -> Iterator[str]:
        for text in modules:
            texts.append(text)
            found = _cached_object(_key(text, target))
            if found is None:
                yield text
            else:
                kept[len(texts) - 1] = found
                heard(n_compiled, 0)

    made = compile_modules(missing(), target, on_progress=heard)
    new = iter(made)
    objects = [kept[k] if k in kept else next(new) for k in range(len(texts))]
    _keep([text for k, text in enumerate(texts) if k not in kept], made, target)
    if not kept:
        return link_objects(objects)
    try:
        image = link_objects(objects)
    except BadObject:
        return _compiled(texts, target)
    wanted = {name for text in texts for name in llvm.functions_defined(text)}
    return image if wanted == {*image.entries} else _compiled(texts, target)


def _compiled(texts: Sequence[str], target: Target) -> CodeImage:
    """As if nothing had been kept, since something of it is of no use."""
    objects = compile_modules(texts, target)
    _keep(texts, objects, target)
    return link_objects(objects)


def _keep(texts: Sequence[str], objects: Sequence[bytes], target: Target) -> None:
    store = cache.kernels()
    if store is not None and texts:
        keys = [_key(text, target) for text in texts]
        store.put_all({k: {_SECTION: one} for k, one in zip(keys, objects, strict=True)})


def _cached_object(key: str) -> bytes | None:
    """The object that is kept under a key."""
    store = cache.kernels()
    sections = None if store is None else store.get(key)
    return bytes(sections[_SECTION]) if sections is not None and _SECTION in sections else None


def _key(text: str, target: Target) -> str:
    return cache.key_of("kernel", text, target.identity, compiler_identity(), _sources())


@lru_cache(maxsize=1)
def _sources() -> bytes:
    """Our own sources that make an object of a text."""
    return sources(os.path.abspath(llvm.__file__))

"""The one place that knows the whole order: a Graph becomes an Executable.

passes -> schedule -> loops -> LLVM -> code        what is done, once
values -> steps -> plan -> launches -> table       where and in which order it is done

A program that is in the cache is loaded from there; what only compiling needs is imported only when
something is compiled.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from arenite.codegen import target
from arenite.codegen.llvm import compiler_identity
from arenite.errors import DamagedCache, NotSupported
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node
from arenite.runtime import cache
from arenite.runtime.compiled import Compiled
from arenite.runtime.executable import Executable

log = logging.getLogger("arenite.pipeline")


def compile_graph(
    graph: Graph, *, threads: int | None = None, memory: int | None = None
) -> Executable:
    """An Executable for this machine: from the cache, where it has been compiled before.

    `memory` is the most bytes the arena may have.
    """
    key = cache.key_of(
        "model",
        graph.digest(),
        str(memory),
        _sources(),
        compiler_identity(),
        target.host_identity(),
    )
    store = cache.default()
    built: list[Compiled] = []

    def build_sections() -> dict[str, bytes]:
        built.append(compile_anew(graph, memory))
        return built[0].sections()

    sections = store.obtain(key, build_sections)
    if built:
        return Executable(graph, built[0], threads)
    try:
        program = Compiled.from_sections(sections)
    except DamagedCache as damage:
        log.info("a damaged program is compiled anew: %s", damage)
        store.drop(key)
        program = compile_anew(graph, memory)
    return Executable(graph, program, threads)


def compile_anew(graph: Graph, memory: int | None = None) -> Compiled:
    """Compile without looking at the cache."""
    from arenite.pipeline.build import build

    return build(graph, memory)


def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
    """The values of nodes that depend on no input."""
    if not nodes:
        return []
    for node in topological(nodes):
        if node.op in ("input", "parameter", "state"):
            raise NotSupported(
                f"a value that depends on {node!r} has no number yet: it is an argument or a state "
                "of a function that is being compiled, or an argument of the body of a loop; "
                "choose with arenite.where or arenite.cond, repeat with arenite.while_loop"
            )
    with compile_graph(Graph.of(nodes)) as program:
        return program.run({})


@lru_cache(maxsize=1)
def _sources() -> bytes:
    """What decides the code that is generated: our own sources, hashed by content."""
    here = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("ir", "passes", "schedule", "codegen", "memory", "runtime", "pipeline"):
        for file in sorted((here / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()

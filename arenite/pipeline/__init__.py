"""The one place that knows the whole order: a Graph becomes an Executable.

passes -> schedule -> loops -> LLVM -> code        what is done, once
values -> steps -> plan -> launches -> table       where and in which order it is done

A program that is in the cache is loaded from there; what only compiling needs is imported only when
something is compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from arenite.errors import DamagedCache, NotSupported
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node
from arenite.memory import MemoryPlan
from arenite.memory.plan import MEMORY
from arenite.pipeline.choices import choices_of
from arenite.pipeline.identity import identity
from arenite.runtime import cache
from arenite.runtime.compiled import Compiled
from arenite.runtime.executable import Executable

log = logging.getLogger("arenite.pipeline")


def compile_graph(
    graph: Graph, *, threads: int | None = None, memory: int | None = None, plan: str = MEMORY
) -> Executable:
    """An Executable for this machine: from the cache, where it has been compiled before.

    `memory` is the most bytes the arena may have, `plan` what its plan is made for: "memory", or
    "concurrency".
    """
    key = _key("model", graph, memory, plan)
    store = cache.default()
    built: list[Compiled] = []

    def build_sections() -> dict[str, bytes]:
        built.append(compile_anew(graph, memory, plan))
        return built[0].sections()

    sections = store.obtain(key, build_sections)
    if built:
        return Executable(graph, built[0], threads)
    try:
        program = Compiled.from_sections(sections)
    except DamagedCache as damage:
        log.info("a damaged program is compiled anew: %s", damage)
        store.drop(key)
        program = compile_anew(graph, memory, plan)
    return Executable(graph, program, threads)


def plan_graph(graph: Graph) -> MemoryPlan:
    """The plan an Executable would have, without making its code; kept in the cache too."""
    store = cache.default()
    compiled = store.get(_key("model", graph, None))
    if compiled is not None:
        with suppress(DamagedCache):  # which compiling drops
            return Compiled.from_sections(compiled).plan
    key = _key("plan", graph, None)

    def build_sections() -> dict[str, bytes]:
        from arenite.pipeline.build import draft

        return {"plan": draft(graph).plan.to_json().encode()}

    sections = store.obtain(key, build_sections)
    return MemoryPlan.from_json(bytes(sections["plan"]).decode())


def cached_fact(graph: Graph, question: str, find: Callable[[], str]) -> str:
    """The answer to a question about a graph, found once and kept in the cache."""
    key = cache.key_of(_key("fact", graph, None), question)
    sections = cache.default().obtain(key, lambda: {"fact": find().encode()})
    return bytes(sections["fact"]).decode()


def _key(kind: str, graph: Graph, memory: int | None, plan: str = MEMORY) -> str:
    choices = str(choices_of(graph))
    return cache.key_of(kind, graph.digest(), str(memory), plan, choices, *identity())


def compile_anew(graph: Graph, memory: int | None = None, plan: str = MEMORY) -> Compiled:
    """Compile without looking at the cache."""
    from arenite.pipeline.build import build

    return build(graph, memory, plan)


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

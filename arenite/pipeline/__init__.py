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
from typing import TYPE_CHECKING, Any

from arenite.errors import DamagedCache, NotSupported
from arenite.ir.interface import GraphInterface
from arenite.memory.plan import MemoryPlan
from arenite.pipeline.choices import choices_of
from arenite.pipeline.identity import identity
from arenite.pipeline.interface_cache import fits
from arenite.program import cache
from arenite.program.backend import backend_of
from arenite.program.compiled import Compiled
from arenite.program.options import USUAL, Options
from arenite.runtime.executable import Executable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.ir import Graph, Node
    from arenite.program.backend import OnCompiled

log = logging.getLogger("arenite.pipeline")


def compile_graph(
    graph: Graph | GraphInterface,
    options: Options = USUAL,
    *,
    threads: int | None = None,
    on_progress: OnCompiled | None = None,
) -> Executable:
    """An Executable for a device of this machine: from the cache, where it has been compiled
    before. While code is made, `on_progress(done, total)` hears of kernels."""
    interface = GraphInterface.of(graph)
    saved = saved_program(interface, options, threads=threads)
    if saved is not None:
        return saved
    backend_of(options.device).prepare()
    if interface.kept_as is not None:
        interface = GraphInterface.of(interface.graph)
    built: list[Compiled] = []

    def build_sections() -> dict[str, bytes]:
        from arenite.garbage import collected_less_often

        with collected_less_often():
            built.append(compile_anew(interface.graph, options, on_progress))
            return built[0].sections()

    sections = cache.default().obtain(_key("model", interface, options), build_sections)
    try:
        program = built[0] if built else Compiled.from_sections(sections)
    except DamagedCache:
        program = compile_anew(interface.graph, options)
    return Executable(interface, program, threads)


def saved_program(
    graph: Graph | GraphInterface, options: Options = USUAL, *, threads: int | None = None
) -> Executable | None:
    """What `compile_graph` makes, where the cache has it; what there is of no use is dropped."""
    interface = GraphInterface.of(graph)
    key = _key("model", interface, options)
    store = cache.default()
    sections = store.get(key)
    if sections is None:
        return None
    try:
        program = Compiled.from_sections(sections)
    except DamagedCache as damage:
        log.info("a damaged program is compiled anew: %s", damage)
        store.drop(key)
        return None
    if interface.kept_as is not None and not fits(interface, program):
        log.info("what was kept of a graph does not fit its program, and is dropped")
        store.drop(interface.kept_as)
        return None
    return Executable(interface, program, threads)


def plan_graph(graph: Graph | GraphInterface, options: Options = USUAL) -> MemoryPlan:
    """The plan an Executable would have, without making its code; kept in the cache too."""
    interface = GraphInterface.of(graph)
    store = cache.default()
    compiled = store.get(_key("model", interface, options))
    if compiled is not None:
        with suppress(DamagedCache):  # which compiling drops
            return Compiled.from_sections(compiled).plan
    key = _key("plan", interface, options)
    plans: list[MemoryPlan] = []

    def build_sections() -> dict[str, bytes]:
        from arenite.garbage import collected_less_often
        from arenite.pipeline.build import plan_program

        with collected_less_often():
            plans.append(plan_program(interface.graph, options).plan)
            return {"plan": plans[0].to_json().encode()}

    sections = store.obtain(key, build_sections, needs=("plan",))
    return plans[0] if plans else MemoryPlan.from_json(bytes(sections["plan"]).decode())


def cached_fact(
    graph: Graph | GraphInterface, question: str, find: Callable[[], str], options: Options = USUAL
) -> str:
    """The answer to a question about a graph, found once and kept in the cache."""
    key = cache.key_of(_key("fact", GraphInterface.of(graph), options), question)
    sections = cache.default().obtain(key, lambda: {"fact": find().encode()}, needs=("fact",))
    return bytes(sections["fact"]).decode()


def _key(kind: str, interface: GraphInterface, options: Options) -> str:
    chosen = choices_of(interface, options)
    return cache.key_of(kind, interface.digest(), repr(options), str(chosen), *identity(options))


def compile_anew(
    graph: Graph, options: Options = USUAL, on_progress: OnCompiled | None = None
) -> Compiled:
    """Compile without looking at the cache."""
    from arenite.pipeline.build import build

    return build(graph, options, on_progress)


def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
    """The values of nodes that depend on no input."""
    from arenite.ir.graph import Graph, topological
    from arenite.ir.ops import OPS

    if not nodes:
        return []
    for node in topological(nodes):
        if OPS[node.op].storage == "given":
            raise NotSupported(
                f"a value that depends on {node!r} has no number yet: it is an argument or a state "
                "of a function that is being compiled, or an argument of the body of a loop; "
                "choose with arenite.where or arenite.cond, repeat with arenite.while_loop, and "
                "give what decides structure to arenite.specialize"
            )
    from arenite.pipeline.program import compile_program

    with compile_program(Graph.of(nodes)) as program:
        program.resets_itself = True  # it runs once
        return program.run({})

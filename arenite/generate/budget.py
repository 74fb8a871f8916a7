"""How long a context fits a budget: chosen, or refused, before any weight is read.

In: a file, and how many bytes there are. Out: the longest context whose plan fits. One plan of the
whole model is made at the shortest context; how work grows from there is seen on a model of the
same shape with two layers, which is quick, and the choice is checked by a plan of the whole.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from functools import cache as remembered
from functools import partial

from arenite.device.allocator import readable_nbytes
from arenite.dtype import DType
from arenite.errors import DoesNotFit
from arenite.frontends.language import LanguageFile
from arenite.ir.interface import GraphInterface
from arenite.memory import MemoryPlan
from arenite.pipeline import cached_fact, plan_graph
from arenite.pipeline.interface_cache import interface_of
from arenite.program.options import USUAL, Options

#: The longest context where nothing is asked for.
DEFAULT_CONTEXT = 4096
#: Tokens that are read at once at the most.
DEFAULT_BLOCK = 128
#: Shorter contexts are not chosen to fit a budget; those that are chosen are multiples of it.
LEAST_CONTEXT = 256
STEP = 32


def chosen_context(
    file: LanguageFile,
    memory: int | None,
    kv: DType,
    block: int,
    sessions: int = 1,
    options: Options = USUAL,
    offloaded: bool = False,
) -> int:
    """The longest context, up to the model's own, of which `sessions` fit `memory` bytes; without a
    budget up to DEFAULT_CONTEXT."""
    most = file.description.context
    if memory is None:
        return min(most, DEFAULT_CONTEXT)
    least = min(LEAST_CONTEXT, most)

    def interface_for(file: LanguageFile, context: int) -> GraphInterface:
        recipe = partial(file.recipe, kv=kv, sessions=sessions, offloaded=offloaded)
        return interface_of(recipe(context=context, block=min(block, context)))

    interface = interface_for(file, least)
    wanted = json.dumps(["context", memory, most, str(kv), block, sessions])

    def find() -> str:
        def planned(file: LanguageFile, context: int) -> MemoryPlan:
            return plan_graph(interface_for(file, context), options)

        return str(_search(file, planned, memory, kv, least, most))

    return int(cached_fact(interface, wanted, find, options))


def check_fits(
    file: LanguageFile, plan: MemoryPlan, memory: int | None, context: int, kv: DType
) -> None:
    """Refuse a plan over the budget, with what would help."""
    if memory is not None and plan.total_nbytes > memory:
        raise DoesNotFit(
            f"{file.path} with a context of {context} tokens needs {plan.total_nbytes} bytes "
            f"({readable_nbytes(plan.total_nbytes)}), and {memory} ({readable_nbytes(memory)}) are "
            f"allowed; {_advice(file, plan, memory, kv)}",
            capacity=memory,
            lower_bound=plan.total_nbytes - plan.peak_nbytes + plan.lower_bound,
            smallest_known=plan.total_nbytes,
            peak_tick=plan.peak_tick,
            live=tuple((slot.id, slot.capacity) for slot in plan.live_at(plan.peak_tick)),
            plan=plan,
        )


def _advice(file: LanguageFile, plan: MemoryPlan, memory: int, kv: DType) -> str:
    """What makes the plan smaller by as much as is needed, as far as its parts tell."""
    sizes = {name: region.nbytes for name, region in plan.regions.items()}
    weights = sizes.get("packed", 0) + sizes.get("mapped", 0)
    if weights > memory:
        return (
            f"its weights alone take {weights} ({readable_nbytes(weights)}), whatever the context: "
            "allow more, or take a smaller model"
        )
    state, over = sizes.get("state", 0), plan.total_nbytes - memory
    ways = ["ask for a shorter context"] if file.is_embedding or over < state else []
    if over < state * (kv.bits - 8) // kv.bits:
        ways.append("keep keys and values in 8 bits")
    return ", or ".join([*ways, "allow more", "take a smaller model"])


def _search(
    file: LanguageFile,
    planned: Callable[[LanguageFile, int], MemoryPlan],
    memory: int,
    kv: DType,
    least: int,
    most: int,
) -> int:
    n_layers = min(2, file.description.n_layers)
    small = file._replace(description=file.description._replace(n_layers=n_layers))

    @remembered
    def work(context: int) -> int:
        """Bytes that are needed beside weights and states."""
        plan = planned(small, context)
        regions = plan.regions.values()
        return sum(r.nbytes for r in regions if r.name in ("work", "io"))

    base = planned(file, least)
    check_fits(file, base, memory, least, kv)
    a_token = base.regions["state"].nbytes // least

    def expected(context: int) -> int:
        state = (context - least) * a_token
        return base.total_nbytes + state + work(context) - work(least)

    def fits(context: int) -> bool:
        return expected(context) <= memory and planned(file, context).total_nbytes <= memory

    # Keys and values alone bound it: no plan is made of a context far too long.
    bound = least + (memory - base.total_nbytes) // a_token
    if most <= bound and fits(most):
        return most
    candidates = range(least, min(most, bound) + 1, STEP)
    n_fitting = bisect_right(candidates, memory, key=expected)
    return next((c for c in reversed(candidates[1:n_fitting]) if fits(c)), least)

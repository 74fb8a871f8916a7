"""What a program takes beside its values: all else that it makes buffers for.

On the device:

    parameters     of launches: where arrays begin, sizes, tiles
    errors         a word for each launch
    sampler        of each text in the making: random numbers, its tokens, bias, counts, a mask
    weights        begin at multiples of ALIGNMENT
    cuts           of an arena that can't be bound at once: values that reach over them

On the host, where the device reads and writes too:

    arguments      that are copied in, those of one run
    results        that are read: of the run that is under way, of the one that is recorded ahead,
                   and of tokens that are chosen ahead
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arenite.backends.webgpu.arena_cuts import stretches
from arenite.backends.webgpu.sampling import sampler_nbytes
from arenite.device.webgpu import WORD_NBYTES, Limits
from arenite.dtype import BY_NAME, float32
from arenite.ir.dim import bounds, variables
from arenite.memory import MemoryPlan
from arenite.program.backend import DeviceMemory, DeviceNeeds
from arenite.program.launch import Launch
from arenite.program.value_spec import ValueSpec

#: Values, and weights, begin at multiples of this within a buffer.
ALIGNMENT = 256
#: Runs whose results are on their way, and tokens that are chosen.
N_RESULTS, N_TOKENS = 2, 5

_USUAL = Limits(2**28, 2**27, 8, 256, 2**14, 2**16 - 1, 256)
_HOST = frozenset({"input", "output"})


def device_memory(
    needs: DeviceNeeds, limits: Limits | None, plan: MemoryPlan | None
) -> DeviceMemory:
    """Bytes by what for. What follows from the plan is there once that is."""
    limits = limits or _USUAL
    values, launches = needs.values, needs.launches
    rows = [one for one in launches if all(values[int(k)].kind not in _HOST for k in one.arrays)]
    n_launches = len(needs.load) + len(launches)
    own = {
        "parameters of launches": len(rows) * parameter_stride(rows, limits),
        "errors of launches": in_sixteens(n_launches * WORD_NBYTES),
    }
    if is_language_model(values):
        own["sampler"] = needs.n_state_sets * sampler_nbytes(*_text(values))
    if plan is not None:
        mapped = [slot.nbytes for slot in plan.slots.values() if slot.region == "mapped"]
        planned = plan.regions["mapped"].nbytes if mapped else 0
        own["gaps between weights"] = max(0, sum(map(rounded, mapped)) - planned)
        largest = min(limits.binding_nbytes, limits.buffer_nbytes)
        reached = sum(one.nbytes for one in stretches(plan, largest))
        own["over cuts of the arena"] = max(0, reached - plan.peak_nbytes)
    host = {
        "arguments on their way": _nbytes(values, "input"),
        "results on their way": staging_nbytes(values, n_launches),
    }
    return DeviceMemory(_named(own), _named(host))


def _named(nbytes: Mapping[str, int]) -> dict[str, int]:
    return {f"webgpu: {what}": size for what, size in nbytes.items() if size}


def is_language_model(values: Sequence[ValueSpec]) -> bool:
    """Whether a program may choose tokens on the device: it keeps keys and values, its first
    argument is a token, and its one result is logits."""
    token = next((one for one in values if one.kind == "input" and one.source == 0), None)
    results = [one for one in values if one.kind == "output"]
    if token is None or len(results) != 1 or all(one.kind != "state" for one in values):
        return False
    return token.dtype == BY_NAME["int32"] and results[0].dtype == float32


def _text(values: Sequence[ValueSpec]) -> tuple[int, int]:
    """How many tokens there are to choose from, and the longest text."""
    [logits] = [one for one in values if one.kind == "output"]
    sizes = [
        var.high for one in values if one.kind == "input" for d in one.shape for var in variables(d)
    ]
    return bounds(logits.shape[-1])[1] if logits.shape else 1, max(sizes, default=1)


def staging_nbytes(values: Sequence[ValueSpec], n_launches: int) -> int:
    """What results are read from, at the most."""
    token = in_sixteens((n_launches + 1) * WORD_NBYTES)
    return N_RESULTS * (token + in_sixteens(_nbytes(values, "output"))) + N_TOKENS * token


def parameter_stride(launches: Sequence[Launch], limits: Limits) -> int:
    """Bytes from the parameters of one launch to those of the next."""
    alignment = max(limits.uniform_alignment, 16)
    widest = max((len(one.arrays) + len(one.sizes) + 3 for one in launches), default=1)
    return -(-widest * WORD_NBYTES // alignment) * alignment


def _nbytes(values: Sequence[ValueSpec], kind: str) -> int:
    return sum(rounded(bounds(one.nbytes)[1], WORD_NBYTES) for one in values if one.kind == kind)


def rounded(nbytes: int, to: int = ALIGNMENT) -> int:
    return -(-nbytes // to) * to


def in_sixteens(nbytes: int) -> int:
    """As buffers for other things than values are made."""
    return rounded(max(nbytes, 1), 16)

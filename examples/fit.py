"""Will it run? What a model needs, for how long a text, before a single weight is read.

python examples/fit.py [MODEL] [BUDGET]
"""

from __future__ import annotations

import os
import sys

from arenite.errors import DoesNotFit
from arenite.fetch import obtain
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings


def main(model: str = "smollm2-135m-instruct", budget: str = "160MiB") -> None:
    file = LanguageFile.open(model if os.path.exists(model) else obtain(model))
    print("context   sessions   keys and values   in all (MiB)")
    for context in (512, 2048, 8192):
        for sessions in (1, 4):
            plan = Settings(file, context=context, sessions=sessions).plan
            state = plan.regions["state"].nbytes / 2**20
            print(f"{context:7}   {sessions:8}   {state:15.1f}   {plan.total_nbytes / 2**20:12.1f}")

    chosen = Settings(file, memory=budget)
    print(f"\n{budget}: a text may have {chosen.context} tokens")
    largest = sorted(chosen.plan.slots.values(), key=lambda slot: -slot.capacity)
    for slot in [slot for slot in largest if slot.region in ("packed", "state")][:5]:
        print(f"  {slot.capacity / 2**20:6.1f} MiB  {slot.region:6}  {slot.id}")
    try:
        _ = Settings(file, memory="32MiB").plan
    except DoesNotFit as refusal:
        print(f"\n32MiB: {refusal}")


if __name__ == "__main__":
    main(*sys.argv[1:])

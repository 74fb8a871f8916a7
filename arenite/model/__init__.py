"""Model: an ONNX file, what goes in and out of it, what it needs, and the program it becomes.

model = arenite.load("m.onnx")
print(model.inputs, model.plan(batch=4))
with model.compile(memory="256MiB") as exe:
    y = exe(x)["y"]
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.model.compiled import CompiledModel as CompiledModel
    from arenite.model.interface import Interface as Interface, ValueInfo as ValueInfo
    from arenite.model.model import Model as Model
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, __all__ = names_of(
        "arenite.model",
        {"compiled": "CompiledModel", "interface": "Interface ValueInfo", "model": "Model"},
    )

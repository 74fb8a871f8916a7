"""Model: an ONNX file, what goes in and out of it, what it needs, and the program it becomes.

model = arenite.load("m.onnx")
print(model.inputs, model.plan(batch=4))
with model.compile(memory="256MiB") as exe:
    y = exe(x)["y"]
"""

from typing import TYPE_CHECKING

from arenite.lazy import names_of

if TYPE_CHECKING:
    from arenite.model.compiled import CompiledModel
    from arenite.model.interface import Interface, ValueInfo
    from arenite.model.model import Model

__all__ = ["CompiledModel", "Interface", "Model", "ValueInfo"]

if not TYPE_CHECKING:  # else every name that is not there would be Any
    __getattr__, __dir__ = names_of(
        __name__,
        {"compiled": "CompiledModel", "interface": "Interface ValueInfo", "model": "Model"},
    )

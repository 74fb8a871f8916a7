"""serve/: many requests at once over one planned model.

with Engine("model.gguf", slots=32, context=1024) as engine:
    print(engine.submit("Once upon a time", max_tokens=50).text())
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.serve.engine import Engine as Engine
    from arenite.serve.stats import EngineStats as EngineStats, SlotStats as SlotStats
    from arenite.serve.stream import Chunk as Chunk, Stream as Stream
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, __all__ = names_of(
        "arenite.serve",
        {"engine": "Engine", "stats": "EngineStats SlotStats", "stream": "Chunk Stream"},
    )

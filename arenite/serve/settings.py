"""EngineSettings: what an engine is made with, and how many pages of keys its memory has room for.

Pages are counted before any weight is read: as many as all slots at their full context take, or
fewer where a budget says so, but no fewer than one text needs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from arenite.errors import NotSupported
from arenite.frontends.language.batch import Pool
from arenite.generate.bounds import whole
from arenite.generate.budget import DEFAULT_BLOCK, DEFAULT_CONTEXT, check_fits
from arenite.generate.model import MAX_SESSIONS, Settings
from arenite.pipeline import plan_graph
from arenite.pipeline.interface_cache import interface_of
from arenite.program.options import Options, parse_nbytes

if TYPE_CHECKING:
    from arenite.frontends.language import LanguageFile
    from arenite.ir.interface import GraphInterface
    from arenite.memory.plan import MemoryPlan

DEFAULT_SLOTS = 4
#: Tokens of a page: fewer share more of what texts have in common, and cost longer tables.
PAGE = 32


class EngineSettings(Settings):
    """`slots` texts at once, each of up to `context` tokens; `block` tokens of prompts are read in
    one step, beside one of each text that is written."""

    def __init__(
        self,
        file: LanguageFile,
        *,
        slots: int = DEFAULT_SLOTS,
        context: int | None = None,
        memory: int | str | None = None,
        kv: str = "float16",
        block: int = DEFAULT_BLOCK,
        device: str = "cpu",
    ) -> None:
        if file.is_embedding:
            raise NotSupported(f"{file.path} is a model for embeddings; an engine writes text")
        if context is None:
            context = min(file.description.context, DEFAULT_CONTEXT)
        super().__init__(file, context=context, kv=kv, block=block, device=device)
        self.slots = whole("slots", slots, 1, MAX_SESSIONS)
        self.options = Options(device=device, same_sums=True, fixed_places=True)
        self.memory = parse_nbytes(memory)

    @property
    def most_rows(self) -> int:
        """Tokens that one step reads, at the most."""
        return self.slots + self.block

    @property
    def pages_a_text(self) -> int:
        """Pages of a text that fills its context."""
        return -(-self.context // PAGE)

    @cached_property
    def pool(self) -> Pool:
        """The pages that there are; DoesNotFit where the budget has no room for one text."""
        most = self.slots * self.pages_a_text
        if self.memory is None:
            return self._pool(most)
        least = self.pages_a_text
        base = self._planned(least)
        check_fits(self.file, base, self.memory, self.context, self.kv)
        a_page = -(-base.regions["state"].nbytes // least)
        n_pages = min(most, least + (self.memory - base.total_nbytes) // a_page)
        while n_pages > least and self._planned(n_pages).total_nbytes > self.memory:
            n_pages -= 1
        return self._pool(n_pages)

    @cached_property
    def interface(self) -> GraphInterface:
        return self._interface(self.pool)

    def _pool(self, n_pages: int) -> Pool:
        return Pool(self.slots, n_pages, PAGE)

    def _planned(self, n_pages: int) -> MemoryPlan:
        with self.refusals():
            return plan_graph(self._interface(self._pool(n_pages)), self.options)

    def _interface(self, pool: Pool) -> GraphInterface:
        recipe = self.file.recipe(
            context=self.context,
            block=self.most_rows,
            kv=self.kv,
            offloaded=self.offloaded,
            pool=pool,
        )
        return interface_of(recipe)

"""Arenite's side of `bench.language`: `session.feed`, which gives the logits of the last token."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from arenite.generate.session import Session
from arenite.loading import load
from bench.language_cases import CONTEXT, Case
from bench.language_models import path_of


def prepare(case: str, threads: int) -> Callable[[], None]:
    wanted = Case.of(case)
    return wanted.work(_session(wanted.file, threads))


@lru_cache(maxsize=1)
def _session(file: str, threads: int) -> Session:
    return load(path_of(file), kind="language", context=CONTEXT, threads=threads).session()

"""llama.cpp's side of `bench.language`, through llama-cpp-python's `eval`: no sampling.

Its better settings: keys and values in float16, flash attention on (up to a fifth faster than off),
prompts in one batch of 512; logits of the last token are read as a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import llama_cpp
import numpy as np

from bench.language_cases import CONTEXT, Case
from bench.language_models import path_of


class Session:
    """What `bench.language_cases.work` drives."""

    def __init__(self, path: str, threads: int) -> None:
        self.model = llama_cpp.Llama(
            path,
            n_ctx=CONTEXT,
            n_batch=CONTEXT,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,
            verbose=False,
        )

    def feed(self, tokens: Sequence[int]) -> object:
        self.model.eval(tokens)
        pointer = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return np.ctypeslib.as_array(pointer, (self.model.n_vocab(),))

    def rewind(self, n_tokens: int) -> None:
        self.model.n_tokens = n_tokens  # `eval` forgets what lies behind


@lru_cache(maxsize=1)
def _session(file: str, threads: int) -> Session:
    return Session(str(path_of(file)), threads)


def prepare(case: str, threads: int) -> Callable[[], None]:
    wanted = Case.of(case)
    return wanted.work(_session(wanted.file, threads))

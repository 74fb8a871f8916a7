"""llama.cpp's side of `bench.layers`: its own graph, one node at a time, timed between callbacks.

`cb_eval` is asked before each node whether it is to be seen, and called after it. What a node takes
that computes nothing, a reshape say, is what the callback and the start of the threads cost: it is
taken off. Activations are quantised within each product.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import llama_cpp
from llama_cpp import llama_cpp as low

from bench.language_cases import CONTEXT, n_runs
from bench.language_models import path_of, prompt
from bench.nodes_side import Times

PRODUCT = b"MUL_MAT"
FREE = frozenset({b"RESHAPE", b"VIEW", b"PERMUTE", b"TRANSPOSE"})
QUIET = low.llama_log_callback(lambda level, text, data: None)


class Tensor(ctypes.Structure):
    """ggml's tensor, as far as its name."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("sizes", ctypes.c_int64 * 4),
    ("strides", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("sources", ctypes.POINTER(Tensor) * 10),
    ("view_source", ctypes.c_void_p),
    ("view_offset", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


class Watch:
    """Seconds of each node of a run: products by the name of their weights, the rest by op."""

    def __init__(self) -> None:
        folder = Path(llama_cpp.__file__).parent / "lib"
        self._op_name = ctypes.CDLL(str(folder / "libggml-base.so")).ggml_op_name
        self._op_name.restype, self._op_name.argtypes = ctypes.c_char_p, [ctypes.c_int]
        self.began = 0.0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.free: list[float] = []
        self.callback = low.ggml_backend_sched_eval_callback(self._see)

    def _see(self, address: int, asked: bool, _: object) -> bool:
        now = time.perf_counter()
        if asked:
            self.began = time.perf_counter()
            return True
        took = now - self.began
        tensor = ctypes.cast(address, ctypes.POINTER(Tensor)).contents
        op = self._op_name(tensor.op)
        if op == PRODUCT:
            weights: bytes = tensor.sources[0].contents.name
            self.seconds[weights.decode().removesuffix(".weight")] += took
        elif op in FREE:
            self.free.append(took)
        return True

    def taken(self) -> Times:
        """What was seen since the last call, less what watching cost."""
        cost = sorted(self.free)[len(self.free) // 2]
        found = {name: seconds - cost for name, seconds in self.seconds.items()}
        self.seconds.clear()
        self.free.clear()
        return found


def prepare(case: str, threads: int) -> Callable[[], list[Times]]:
    file, _, n_rows = case.partition(", ")
    watch = Watch()
    low.llama_log_set(QUIET, None)
    settings = low.llama_model_default_params()
    model = low.llama_model_load_from_file(str(path_of(file)).encode(), settings)
    options = low.llama_context_default_params()
    options.n_ctx = options.n_batch = CONTEXT
    options.n_ubatch = 512
    options.n_threads = options.n_threads_batch = threads
    options.cb_eval = watch.callback
    context = low.llama_init_from_model(model, options)
    tokens = prompt(file, int(n_rows))
    array = (low.llama_token * len(tokens))(*tokens)

    def once() -> Times:
        low.llama_memory_clear(low.llama_get_memory(context), False)
        failed = low.llama_decode(context, low.llama_batch_get_one(array, len(tokens)))
        if failed:
            raise RuntimeError(f"llama.cpp does not read {case}: it returns {failed}")
        return watch.taken()

    def work() -> list[Times]:
        once()
        return [once() for _ in range(n_runs(int(n_rows)))]

    return work

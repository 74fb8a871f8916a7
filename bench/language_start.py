"""From nothing to the first token, and the memory a model takes: each time in a new process.

`seconds` is from the start of the process to the logits after a prompt of 8 tokens, `beyond_import`
the same from the end of the imports. `nbytes` is the most memory the process had while it loaded,
read 128 tokens and wrote 64, beyond what it had after its imports; pages of a mapped file count.
Sources are compiled to bytecode once, as those of an installed package are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.language_cases import CONTEXT

#: What each side imports, and how it makes `feed`.
SIDES = {
    "ours": (
        "import numpy, arenite.loading",
        "feed = arenite.loading.load(path, context=context, threads=threads).session().feed",
    ),
    "llama.cpp": (
        "import numpy, llama_cpp",
        """
model = llama_cpp.Llama(path, n_ctx=context, n_batch=context, n_ubatch=512, n_threads=threads,
                        n_threads_batch=threads, flash_attn=True, verbose=False)
def feed(tokens):
    model.eval(tokens)
    pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    return numpy.ctypeslib.as_array(pointer, (model.n_vocab(),))
""",
    ),
}

#: 5 in clear_refs: the highest memory so far is forgotten.
CHILD = """
import json, os, re, sys, time
def kibibytes(field):
    return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
path, context, threads, began = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
{imports}
imported = time.time()
before = kibibytes("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
{make}
float(feed(list(range(1000, 1008)))[0])
first = time.time()
feed(list(range(1008, 1128)))
for token in range(64):
    feed([2000 + token])
nbytes = 1024 * (kibibytes("VmHWM") - before)
print(json.dumps([first - began, first - imported, nbytes]), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Start:
    seconds: float
    beyond_import: float
    nbytes: float


def start_of(side: str, path: Path, threads: int, times: int = 7) -> Start:
    """Medians over new processes, after one that fills the caches."""
    imports, make = SIDES[side]
    code = CHILD.format(imports=imports, make=make)
    found = [_once(code, path, threads) for _ in range(times + 1)]
    return Start(*(median(column) for column in zip(*found[1:], strict=True)))


def _once(code: str, path: Path, threads: int) -> list[float]:
    given = [str(path), str(CONTEXT), str(threads), str(time.time())]
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, *given],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a start of {path.name} failed:\n{done.stderr}")
    answer: list[float] = json.loads(done.stdout.splitlines()[-1])
    return answer

"""Memory that a process takes for a language model, measured: the plan and a small rest.

It is measured in a child that finds everything compiled, from after its imports on, with all that
was planned in use: a conversation that fills the context, sampling, every position, tokens from all
over the vocabulary. Of SmolLM2 the rest is 14 to 18 MiB: objects of the
program, what is bound for each size of a block, 4 of the tokenizer, pages of libraries.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arenite.frontends.gguf import GgufFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads and resets /proc/self")

#: Above the plan and what imports take.
REST_NBYTES = 30 * 2**20
#: What threads may take while a model is closed.
SLACK_NBYTES = 2**20

MEASURE = """
import importlib, json, re, sys
from itertools import cycle, islice
from pathlib import Path

path, (options, modules, asked, root) = sys.argv[1], map(json.loads, sys.argv[2:])
if root is not None:
    sys.path.insert(0, root)
    from arenite.errors import AreniteError
    from arenite.generate.jinja import meter
    from arenite.generate.template import ChatTemplate
    from tests.generate.template_bombs import BOMBS
for module in modules:
    importlib.import_module(module)
import arenite

def nbytes(name):
    found = re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return 1024 * int(found[1])

Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before, anonymous_before = nbytes("VmRSS"), nbytes("RssAnon")
found = {}
with arenite.load(path, **options) as model:
    context, n_tokens = model.context, model.file.description.n_tokens
    folder = Path(arenite.__file__).parent / "generate"
    text = "".join(file.read_text() for file in sorted(folder.glob("*.py"))[: 20 if modules else 1])
    words = model.tokenizer.encode(text)[: context - 96]
    content = model.tokenizer.decode(words if modules else words[:8])
    prompt = model.chat_tokens([{"role": "user", "content": content}])
    *_, last = model.pieces(prompt, max_tokens=24, temperature=0.8, top_p=0.95, seed=1, **asked)
    found["chat_tokens"] = last.stats.prompt_tokens + last.stats.generated_tokens
    if modules:
        # All positions, and tokens from all over the table: Linux maps pages around each.
        rows = list(range(0, n_tokens, 64))
        session = model.session()
        for _ in range(-(-len(rows) // context)):
            session.reset()
            session.feed(list(islice(cycle(rows), context)))
            rows = rows[context:] + rows[:context]
    found["resident"] = nbytes("VmRSS") - before
    if root is not None:
        meter.BASE_STEPS = 2**16  # memory is filled before that
        for source in BOMBS.values():
            try:
                ChatTemplate(source, path).render([{"role": "user", "content": "x"}])
            except AreniteError:
                continue
    found["peak"] = nbytes("VmHWM") - before
    found["anonymous"] = nbytes("RssAnon") - anonymous_before
    found["context"] = context
    found["planned"] = model.plan.total_nbytes
    found["planned_anonymous"] = model.plan.total_nbytes - model.plan.regions["mapped"].nbytes
found["anonymous_closed"] = nbytes("RssAnon") - anonymous_before
found["modules"] = sorted(name for name in sys.modules if name.split(".")[0] == "arenite")
found["others"] = sorted({name.split(".")[0] for name in sys.modules})
print(json.dumps(found))
"""


def measured(
    path: Path,
    options: dict[str, Any],
    modules: list[str],
    cache: Path | None = None,
    hostile: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """What a new process finds, which imports these modules first. With none of them it does just
    enough to fill the cache, and to say what is imported on the way. `asked`: of the answer;
    `hostile`: then it renders templates that were made to fill the memory."""
    root = str(Path(__file__).parents[2]) if hostile else None
    given = [str(path), *map(json.dumps, (options, modules, asked, root))]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *given],
        env=os.environ | ({} if cache is None else {"ARENITE_CACHE_DIR": str(cache)}),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def warm_modules(path: Path, options: dict[str, Any]) -> list[str]:
    """What is imported once the cache is full. Where a budget is given the second process chooses
    the context again, by the plan of what was compiled."""
    return _warm_modules(path, json.dumps(options))


@functools.cache
def _warm_modules(path: Path, options: str) -> list[str]:
    measured(path, json.loads(options), [])
    modules: list[str] = measured(path, json.loads(options), [])["modules"]
    return modules


@pytest.mark.parametrize(
    "options",
    [
        {"context": 512},
        {"memory": "132MiB"},
        {"memory": "160MiB"},
        {"memory": "160MiB", "kv": "int8"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_a_process_takes_the_plan_and_little_more(smollm2: Path, options: dict[str, Any]) -> None:
    found = measured(smollm2, options, warm_modules(smollm2, options))
    assert found["chat_tokens"] > found["context"] - 96
    assert not {"llvmlite", "tokenizers"} & {*found["others"]}
    assert found["peak"] <= found["planned"] + REST_NBYTES
    # The plan does not count what is not used, and closing gives all of it back.
    assert found["anonymous"] >= found["planned_anonymous"]
    given_back = found["anonymous"] - found["anonymous_closed"]
    assert given_back >= found["planned_anonymous"] - SLACK_NBYTES


@pytest.mark.parametrize(
    ("options", "has_folder"),
    [({"context": 512}, True), ({"memory": "140MiB"}, True), ({"context": 512}, False)],
    ids=str,
)
def test_the_first_process_takes_no_more(
    smollm2: Path, options: dict[str, Any], has_folder: bool, tmp_path: Path
) -> None:
    """It plans and compiles, but in a child; where there is no folder for a cache too."""
    modules = warm_modules(smollm2, options)
    (tmp_path / "file").write_text("not a folder")
    cache = tmp_path / ("folder" if has_folder else "file")
    found = measured(smollm2, options, modules, cache=cache)
    assert not {"arenite.passes", "arenite.schedule"} & {*found["modules"]}
    assert found["peak"] <= found["planned"] + REST_NBYTES


def test_a_schema_takes_no_more(smollm2: Path) -> None:
    pytest.importorskip("llguidance")
    options = {"context": 512}
    person = {"name": {"type": "string"}, "age": {"type": "integer"}}
    schema = {"type": "object", "properties": person, "required": ["name", "age"]}
    found = measured(smollm2, options, warm_modules(smollm2, options), json_schema=schema)
    assert found["peak"] <= found["planned"] + REST_NBYTES


def test_a_chat_template_takes_no_more_whatever_it_does(smollm2: Path) -> None:
    """A render is not in the plan, and small enough to need no place in it."""
    options = {"context": 512}
    found = measured(smollm2, options, warm_modules(smollm2, options), hostile=True)
    assert found["resident"] >= found["planned_anonymous"], "all that was planned is in use"
    assert found["peak"] <= found["planned"] + REST_NBYTES


def test_a_header_that_was_read_takes_no_memory(smollm2: Path) -> None:
    def file_nbytes() -> int:
        found = re.search(r"^RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
        assert found is not None
        return 1024 * int(found[1])

    file = GgufFile.open(smollm2)
    texts = file.metadata.texts("tokenizer.ggml.tokens")
    before = file_nbytes()
    file.drop_headers()
    assert before - file_nbytes() >= 2**20
    assert file.metadata.texts("tokenizer.ggml.tokens") == texts

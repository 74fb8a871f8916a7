"""A model that was loaded once is loaded again without its graph: never with a wrong program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenite.errors import DoesNotFit
from arenite.frontends.language import LanguageFile
from arenite.frontends.language.recipe import Recipe
from arenite.generate import LanguageModel, Settings, child_process
from arenite.ir import Graph
from arenite.loading import load
from arenite.program import cache
from tests.generate.exact import ExactModel
from tests.generate.gguf_models import Shape, write_model
from tests.warm_modules import compiling

TOKENS = [1, 33, 5, 90, 12, 7, 64, 3, 77, 21, 9, 40]
#: Root mean square of errors, of logits that spread over some 4.
BOUND = 2e-5
BASE = Shape()
#: What files differ in from the base: a value of the metadata, the type of one tensor, shapes.
OTHERS = {
    "metadata": Shape(rope_base=20_000.0),
    "type": Shape(weights=("F32", "F16", *["F32"] * 100)),
    "shapes": Shape(ffn=224),
}


@pytest.fixture
def folder(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, and a cache without graphs and programs. The code of single kernels is
    that of all tests: compiling the same ones for each would take most of the time."""
    kernels, of_all = tmp_path / "cache" / "kernels", cache_folder / "kernels"
    for made in (kernels.parent, of_all):
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
    kernels.symlink_to(of_all, target_is_directory=True)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(kernels.parent))
    return tmp_path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that are built from now on."""
    made: list[Graph] = []
    build = Recipe.build

    def counting(recipe: Recipe) -> Graph:
        made.append(build(recipe))
        return made[-1]

    monkeypatch.setattr(Recipe, "build", counting)
    return made


def written(folder: Path, name: str, shape: Shape) -> Path:
    path = folder / f"{name}.gguf"
    write_model(path, shape)
    return path


def loaded(path: Path) -> LanguageModel:
    return load(path, kind="language", context=64, block=16, kv="float32", threads=2)


def check(path: Path) -> None:
    """The model says what exact arithmetic makes of the file's own weights."""
    exact = ExactModel(path).logits(TOKENS)[-1]
    with loaded(path) as model:
        error = model.session().feed(TOKENS) - exact
    assert np.sqrt((error**2).mean()) < BOUND


@pytest.fixture
def entry(folder: Path) -> Path:
    """Where the cache has what was kept of the base's graph."""
    path = written(folder, "base", BASE)
    loaded(path).close()
    with loaded(path) as model:
        key = model.settings.interface.kept_as
    assert key is not None
    return folder / "cache" / f"{key}{cache.SUFFIX}"


def test_the_second_load_builds_no_graph(folder: Path, built: list[Graph]) -> None:
    path = written(folder, "base", BASE)
    check(path)
    assert len(built) == 1
    check(path)
    assert len(built) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_that_differs_has_a_graph_of_its_own(
    folder: Path, built: list[Graph], name: str
) -> None:
    for n_built, (stem, shape) in enumerate({"base": BASE, name: OTHERS[name]}.items(), 1):
        path = written(folder, stem, shape)
        check(path)
        check(path)
        assert len(built) == n_built
    assert len({graph.digest() for graph in built}) == 2


def test_weights_are_those_of_the_file_whoever_was_compiled_first(
    folder: Path, built: list[Graph]
) -> None:
    check(written(folder, "base", BASE))
    check(written(folder, "other", Shape(seed=2)))
    assert len(built) == 1


def test_a_file_that_was_overwritten_is_another(folder: Path, built: list[Graph]) -> None:
    for shape in (BASE, Shape(seed=2), *OTHERS.values(), BASE):
        check(written(folder, "same", shape))
    assert len(built) == 1 + len(OTHERS)


def test_other_settings_have_other_programs(folder: Path, built: list[Graph]) -> None:
    path = written(folder, "base", BASE)
    loaded(path).close()
    for changes in ({"context": 96}, {"block": 8}, {"kv": "float16"}):
        settings: dict[str, Any] = {"context": 64, "block": 16, "kv": "float32", **changes}
        for _ in range(2):
            with load(path, threads=1, **settings) as model:
                state = model.executable.state["k0"]
                assert (state.shape[0], str(state.dtype)) == (settings["context"], settings["kv"])
                assert model.settings.block == settings["block"]
    assert len(built) == 4


def test_what_needs_the_graph_finds_it(folder: Path, built: list[Graph]) -> None:
    path = written(folder, "base", BASE)
    with loaded(path) as cold:
        graph, plan, passes = cold.settings.graph, cold.plan, len(cold.executable.passes)
    with loaded(path) as warm:
        assert warm.plan == plan == warm.settings.plan
        assert list(warm.executable.state) == [node.attr("name") for node in graph.states]
        assert len(built) == 1
        assert warm.executable.graph is warm.settings.graph
        assert warm.settings.graph.digest() == graph.digest()
        assert len(warm.executable.passes) == passes
        assert len(built) == 2
        warm.executable.verify()


def test_a_budget_is_met_without_a_graph(folder: Path, built: list[Graph]) -> None:
    path = written(folder, "base", Shape(context=1024))
    needed = Settings(LanguageFile.open(path), context=300).plan.total_nbytes
    with load(path, memory=needed, threads=1) as cold:
        context = cold.context
        assert cold.plan.total_nbytes <= needed
    built.clear()
    with load(path, memory=needed, threads=1) as warm:
        assert warm.context == context
        assert warm.settings.plan == warm.plan
    with pytest.raises(DoesNotFit):
        load(path, context=context, memory=cold.plan.total_nbytes - 1)
    assert built == []


def test_a_damaged_entry_is_made_anew(folder: Path, entry: Path, built: list[Graph]) -> None:
    raw = bytearray(entry.read_bytes())
    raw[len(raw) // 2] ^= 1
    entry.write_bytes(raw)
    check(folder / "base.gguf")
    assert len(built) == 1
    check(folder / "base.gguf")
    assert len(built) == 1


def test_an_entry_in_anothers_place_is_not_believed(
    folder: Path, entry: Path, built: list[Graph]
) -> None:
    other = written(folder, "other", OTHERS["metadata"])
    loaded(other).close()
    with loaded(other) as model:
        key = model.settings.interface.kept_as
    shutil.copy(entry, entry.with_name(f"{key}{cache.SUFFIX}"))
    built.clear()
    check(other)
    assert len(built) == 1


#: What entries may say that no entry of ours says.
WRONG: list[dict[str, object]] = [
    {"digest": None},
    {"constants": []},
    {"constants": ["no such tensor"]},
    {"inputs": [["tokens", [1, 2], "float32"]]},
    {"states": []},
    {"vars": [["tokens", 5]]},
]


def test_an_entry_that_says_something_else_is_not_used(
    folder: Path, entry: Path, built: list[Graph]
) -> None:
    sections = cache.default().get(entry.stem)
    assert sections is not None
    content, data = json.loads(bytes(sections["ports"])), bytes(sections["data"])
    for n_built, changes in enumerate(WRONG, 1):
        interface = json.dumps({**content, **changes}).encode()
        cache.default().put(entry.stem, {"ports": interface, "data": data})
        check(folder / "base.gguf")
        assert len(built) == n_built


def test_an_entry_that_leads_to_another_program_is_not_used(
    folder: Path, entry: Path, built: list[Graph]
) -> None:
    other = written(folder, "other", OTHERS["shapes"])
    with loaded(other) as model:
        digest = model.settings.graph.digest()
    sections = cache.default().get(entry.stem)
    assert sections is not None
    content = {**json.loads(bytes(sections["ports"])), "digest": digest}
    data = bytes(sections["data"])
    cache.default().put(entry.stem, {"ports": json.dumps(content).encode(), "data": data})
    built.clear()
    check(folder / "base.gguf")
    assert len(built) == 1


CODE = """
import sys
from arenite.loading import load

with load(sys.argv[1], context=64, block=16, threads=2) as model:
    session = model.session()
    print(session.feed([1, 2, 3]).tobytes().hex(), session.feed([4]).tobytes().hex())
print(*sys.modules)
ours = [module for name, module in sys.modules.items() if name.startswith("arenite.")]
print(*{
    thing.__qualname__ for module in ours for thing in vars(module).values()
    if isinstance(thing, type) and "__dataclass_fields__" in vars(thing)
})
"""


def test_a_warm_load_imports_nothing_that_builds_or_compiles(folder: Path) -> None:
    path = written(folder, "base", BASE)

    def start() -> list[str]:
        given = [sys.executable, "-c", CODE, str(path)]
        return subprocess.run(given, capture_output=True, text=True, check=True).stdout.splitlines()

    logits, imported, _ = start()
    assert "arenite.frontends.language.builder" in imported.split()
    again, imported, dataclasses = start()
    assert again == logits
    modules = set(imported.split())
    ours = {name for name in modules if name.startswith("arenite.")}
    assert compiling(modules) == set()
    rooms = ("hazards", "tensor", "cli", "fetch")
    assert not {name for name in ours if name.split(".")[1] in rooms}
    graphs = ("arenite.ir.graph", "arenite.ir.ops", "arenite.ir.compose", "arenite.ir.reference")
    builders = tuple(f"arenite.frontends.language.{name}" for name in ("builder", "llama", "bert"))
    assert not {name for name in ours if name.startswith((*graphs, *builders))}
    heavy = {"llvmlite", "jinja2", "tokenizers", "ml_dtypes", "numpy.ma", "pathlib", "tempfile"}
    assert not modules & heavy
    assert len(ours) <= 100
    # Each takes Python half a millisecond: source text that is compiled when it is made.
    assert dataclasses.split() == []


@pytest.mark.parametrize("has_folder", [True, False], ids=["folder", "no folder"])
def test_what_a_child_prepares_is_not_made_again(
    folder: Path, built: list[Graph], has_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of many tensors is prepared by one, however few its bytes are."""
    path = written(folder, "base", BASE)
    if not has_folder:
        (folder / "file").write_text("not a folder")
        monkeypatch.setenv("ARENITE_CACHE_DIR", str(folder / "file"))
    monkeypatch.setattr(child_process, "LEAST_TENSORS", len(LanguageFile.open(path).tensors))
    check(path)
    assert not built
    assert cache.default().info().n_entries > 0

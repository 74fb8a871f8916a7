"""Writes `docs/reference.md` and `docs/reference/`: every public name, from its docstring.

    .venv/bin/python docs/make_reference.py            write the pages
    .venv/bin/python docs/make_reference.py --check    say which pages differ, and exit with 1

The head of a page, down to the mark, is written by hand and stays; what follows comes from the
code.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import arenite

DOCS = Path(__file__).parent
#: A signature that is longer is written with one argument a line.
WIDTH = 100


MARK = "<!-- what follows is written by docs/make_reference.py -->"

#: What a user writes, and the object.
Names = Mapping[str, Any]
#: The names of a page, by heading; "" for those without one.
Page = Mapping[str, Names]


def body(page: Page) -> str:
    """The part of a page that is made from docstrings."""
    parts = []
    for heading, names in page.items():
        parts += [f"## {heading}"] if heading else []
        parts += [entry(name, value) for name, value in names.items()]
    return "\n\n".join(parts)


def public_of(room: str) -> dict[str, Any]:
    """The names that a room offers."""
    module = import_module(f"arenite.{room}")
    return {f"{room}.{name}": getattr(module, name) for name in module.__all__}


def functions_of(room: str) -> dict[str, Any]:
    """The functions that a module defines or imports under their own names."""
    module = import_module(f"arenite.tensor.{room}")
    own = inspect.getmembers_static(module, inspect.isfunction)
    offered = [(name, value) for name, value in own if not name.startswith("_")]
    return {f"{room}.{name}": value for name, value in offered if name in _SPACES[room].split()}


#: The names of the array API's extensions.
_SPACES = {
    "linalg": (
        "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
        "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot "
        "vector_norm"
    ),
    "fft": (
        "fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn"
    ),
}


def classes_of(room: str) -> dict[str, Any]:
    """The classes that a module defines, in its order."""
    module = import_module(f"arenite.{room}")
    classes = inspect.getmembers_static(module, inspect.isclass)
    own = [(name, value) for name, value in classes if value.__module__ == module.__name__]
    own.sort(key=lambda item: list(vars(module)).index(item[0]))
    return {f"{room}.{name}": value for name, value in own if not name.startswith("_")}


def named(paths: str) -> dict[str, Any]:
    """Objects by module and name, under their names alone."""
    found = {}
    for path in paths.split():
        module, _, name = path.rpartition(".")
        found[name] = getattr(import_module(f"arenite.{module}"), name)
    return found


def top(names: str) -> dict[str, Any]:
    """Names of the package itself."""
    return {f"arenite.{name}": getattr(arenite, name) for name in names.split()}


def top_names() -> dict[str, Any]:
    """All that the package itself offers, rooms not counted."""
    found = {name: getattr(arenite, name) for name in import_module("arenite").__all__}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


# One entry.


def entry(name: str, value: Any) -> str:
    """A heading, the signature, the docstring, and the members of a class."""
    parts = [f"### {name}"]
    short = name.rpartition(".")[2]
    if inspect.isclass(value):
        parts += _class(short, value)
    elif callable(value):
        parts += [_code(signature(short, value)), paragraphs(value)]
    elif type(value).__module__.startswith("arenite"):
        parts += [paragraphs(type(value))]
    else:
        parts += [_code(f"{short} = {value!r}"), _comment_of(name)]
    return "\n\n".join(part for part in parts if part)


def _class(short: str, value: type) -> list[str]:
    bases = [base.__name__ for base in value.__bases__ if base.__name__ not in _SILENT]
    about = [f"*{', '.join(bases)}*"] if bases and issubclass(value, BaseException) else []
    if issubclass(value, enum.Enum):
        members = "\n".join(f"- `{short}.{one.name}`" for one in value)
        return [paragraphs(value), members]
    if getattr(value, "__total__", None) is not None:  # a TypedDict
        keys = "\n".join(f"- `{key}: {written(kind)}`" for key, kind in _annotations(value).items())
        return [paragraphs(value), keys]
    head = [] if issubclass(value, BaseException) or _is_protocol(value) else _constructor(value)
    members = "\n".join(f"- {line}" for line in (*field_lines(value), *member_lines(value)))
    return [*about, *head, paragraphs(value), members]


_SILENT = ("object", "Protocol", "Generic")


def _is_protocol(value: type) -> bool:
    return bool(getattr(value, "_is_protocol", False)) or inspect.isabstract(value)


def _constructor(value: type) -> list[str]:
    """Nothing for a class that only Arenite itself makes."""
    text = signature(value.__name__, value)
    return [] if ": _" in text else [_code(text)]


def _annotations(value: type) -> dict[str, Any]:
    return dict(getattr(value, "__annotations__", {}))


#: A field of a class with a comment behind it.
_FIELD = re.compile(r"^    ([a-z]\w*): (.*?)(?: = .*)?  # (.*)$", re.MULTILINE)


def field_lines(value: type) -> Iterator[str]:
    """A line for each field that has a comment."""
    head = inspect.getsource(value).split("    def ")[0]
    for name, kind, about in _FIELD.findall(head):
        yield f"`{name}: {kind}`: {about}"


def member_lines(value: type) -> Iterator[str]:
    """A line for each public method and property of a class, those of bases behind its own."""
    seen: set[str] = set()
    for owner in value.__mro__:
        if not owner.__module__.startswith("arenite"):
            continue
        for name, member in vars(owner).items():
            if name in seen or (name.startswith("_") and name not in ("__call__", "__getitem__")):
                continue
            function = _function_of(member)
            about = first_paragraph(function) if function is not None else ""
            if function is None or not about:
                continue
            seen.add(name)
            if isinstance(member, staticmethod | classmethod) or callable(member):
                yield f"`{signature(name, function, is_method=True)}`: {about}"
            else:
                yield f"`{name}`: {about}"


def _function_of(member: Any) -> Callable[..., Any] | None:
    """What holds the docstring of a method, a property or a cached property."""
    if isinstance(member, property):
        return member.fget
    for attribute in ("__func__", "func"):
        if hasattr(member, attribute):
            inner: Callable[..., Any] = getattr(member, attribute)
            return inner
    return member if inspect.isfunction(member) else None


def signature(name: str, function: Callable[..., Any], *, is_method: bool = False) -> str:
    """As it would be written, without `self`."""
    called = inspect.signature(function)
    given = [*called.parameters.values()]
    if is_method and given and given[0].name in ("self", "cls"):
        given = given[1:]
    parts: list[str] = []
    kinds = [parameter.kind for parameter in given]
    for k, parameter in enumerate(given):
        before = kinds[k - 1] if k else None
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parts.append("*")
        parts.append(_parameter(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY and (
            k + 1 == len(given) or kinds[k + 1] is not parameter.POSITIONAL_ONLY
        ):
            parts.append("/")
    empty = called.return_annotation is inspect.Signature.empty or inspect.isclass(function)
    result = "" if empty else f" -> {written(called.return_annotation)}"
    text = f"{name}({', '.join(parts)}){result}"
    if len(text) <= WIDTH or is_method:
        return text
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{lines}){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    is_rest, is_names = (
        parameter.kind is kind for kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    )
    text = "*" * is_rest + "**" * is_names + parameter.name
    has_type = parameter.annotation is not inspect.Parameter.empty
    if has_type:
        text += f": {written(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    return text + (" = " if has_type else "=") + _default(parameter.default)


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    text = str(value.__name__) if hasattr(value, "__name__") else repr(value)
    return "..." if text.startswith("<") else text


def written(annotation: Any) -> str:
    """A type as its source has it."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(annotation, str):
        return (
            annotation.replace('"', "").replace("'", "")
            if "Literal" not in annotation
            else (annotation)
        )
    if annotation is None or annotation is type(None):
        return "None"
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    return text.replace("typing.", "").replace("collections.abc.", "")


# Texts.


def paragraphs(value: object) -> str:
    """A docstring as Markdown: indented lines stay as they are."""
    text = inspect.getdoc(value) or ""
    parts = []
    for part in text.split("\n\n"):
        is_code = all(line.startswith("    ") or not line for line in part.split("\n"))
        parts.append(_code(textwrap.dedent(part)) if is_code and part else part)
    return "\n\n".join(parts)


def first_paragraph(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _comment_of(name: str) -> str:
    """The `#:` lines above a constant, or above where it comes from."""
    room, _, short = name.rpartition(".")
    if room == "arenite":
        room = arenite._NAMES[short]
    for module in (f"arenite.{room}", *_modules_of(f"arenite.{room}")):
        lines = inspect.getsource(import_module(module)).split("\n")
        for k, line in enumerate(lines):
            if line.startswith((f"{short} =", f"{short}:")):
                about: list[str] = []
                while lines[k - 1].startswith("#:"):
                    k -= 1
                    about.insert(0, lines[k].removeprefix("#:").strip())
                return " ".join(about)
    return ""


def _modules_of(package: str) -> list[str]:
    folder = Path(import_module(package).__file__ or "").parent
    return [f"{package}.{file.stem}" for file in sorted(folder.glob("[a-z]*.py"))]


# The pages.

#: Functions of tensors by heading; those in none of the lists are elementwise.
_FUNCTIONS = {
    "Making tensors": (
        "arange asarray empty empty_like eye from_dlpack from_numpy full full_like linspace "
        "meshgrid ones ones_like tril triu zeros zeros_like"
    ),
    "Elementwise": "",
    "Reductions": (
        "all any argmax argmin count_nonzero cumprod cumsum cumulative_prod cumulative_sum diff "
        "max mean median min prod std sum var"
    ),
    "Shape": (
        "broadcast_arrays broadcast_to cat concat concatenate diagonal expand_dims flip hstack "
        "matrix_transpose moveaxis pad permute_dims ravel repeat reshape roll split squeeze stack "
        "swapaxes tile transpose unstack vstack"
    ),
    "Indexing and sorting": (
        "argsort isin nonzero searchsorted sort take take_along_axis unique_all unique_counts "
        "unique_inverse unique_values where"
    ),
    "Products and networks": "dot einsum gru inner lstm matmul outer tensordot vdot vecdot",
    "Dtypes": (
        "astype bfloat16 bool can_cast complex128 complex64 finfo float16 float32 float64 iinfo "
        "int16 int32 int64 int8 isdtype result_type uint16 uint32 uint64 uint8"
    ),
    "Constants": "e inf nan newaxis pi",
    "Branches, loops, structure": "cond fori_loop host_call realize_all scan specialize while_loop",
}

_COMPILE_NAMES = "compile spec static any_size Var TensorSpec State tune export"
_MODEL_NAMES = "load LanguageModel"


def _tensor_functions() -> dict[str, Names]:
    elsewhere = {*_COMPILE_NAMES.split(), *_MODEL_NAMES.split(), "Tensor", "Generator", "Model"}
    listed = {name for names in _FUNCTIONS.values() for name in names.split()}
    others = [name for name in top_names() if name not in listed | elsewhere]
    functions = {**_FUNCTIONS, "Elementwise": " ".join(others)}
    return {heading: top(names) for heading, names in functions.items()}


def pages() -> dict[str, Page]:
    """By their names under `docs/reference/`."""
    results = named(
        "tensor.compile.CompiledFunction runtime.executable.Executable "
        "program.cached_kernel.CachedKernel program.cached_kernel.Kernels "
        "program.options.Options program.launch.Launch runtime.profile.Profile "
        "runtime.state.States runtime.state.HeldState pipeline.export.Exported"
    )
    models = top("Model") | public_of("model")
    del models["model.Model"]
    texts = public_of("generate")
    del texts["generate.LanguageModel"]
    dtypes = {f"dtype.{k}": v for k, v in named("dtype.of dtype.DType dtype.Kind").items()}
    return {
        "compiling": {"Functions": top(_COMPILE_NAMES), "What they return": results},
        "tensors": {"Classes": top("Tensor Generator"), **_tensor_functions()},
        "onnx": {"Models": models, "The stand-in for ONNX Runtime": public_of("onnxruntime")},
        "linear-algebra": {
            "Linear algebra": functions_of("linalg"),
            "Fourier": functions_of("fft"),
        },
        "language-models": {
            "Loading": top(_MODEL_NAMES),
            "Texts": texts,
            "Many texts at once": public_of("serve"),
            "Fetching": public_of("fetch"),
        },
        "device": {"": public_of("device")},
        "hazards": {"": public_of("hazards")},
        "memory": {"": public_of("memory")},
        "dtype": {"": dtypes},
        "errors": {"": classes_of("errors")},
    }


def index(made: Mapping[str, Page], titles: Mapping[str, str]) -> str:
    """The first page: every name with a link, and the rooms that have no list of names."""
    lines = [
        "# Reference",
        "",
        "Every public name, written by `docs/make_reference.py` from the docstrings.",
        "",
    ]
    for page, headings in made.items():
        path = f"reference/{page}.md"
        lines += [f"## [{titles[page]}]({path})", ""]
        anchors = _anchors([name for names in headings.values() for name in names])
        for heading, names in headings.items():
            links = ", ".join(f"[{_short(name)}]({path}#{anchors[name]})" for name in names)
            lines += [f"{heading}: {links}" if heading else links, ""]
    lines += [
        "## Rooms for those who carry on",
        "",
        "What they are for is on the [map](architecture.md); names in them may change.",
        "",
        "| room | what it is |",
        "|---|---|",
    ]
    for name in import_module("arenite").__all__:
        room = getattr(arenite, name)
        if isinstance(room, ModuleType) and name not in _ROOMS_WITH_PAGES:
            lines.append(f"| `arenite.{name}` | {first_paragraph(room)} |")
    return "\n".join(lines) + "\n"


_ROOMS_WITH_PAGES = (
    "device",
    "dtype",
    "errors",
    "fetch",
    "generate",
    "hazards",
    "memory",
    "model",
    "onnxruntime",
    "serve",
    "tensor",
    "fft",
    "linalg",
)


def _short(name: str) -> str:
    return name.removeprefix("arenite.")


def _anchors(names: Sequence[str]) -> dict[str, str]:
    """As GitHub makes them from headings: of two that are alike the second gets a number."""
    counts: dict[str, int] = {}
    anchors = {}
    for name in names:
        plain = "".join(letter for letter in name.lower() if letter.isalnum() or letter in "-_")
        count = counts[plain] = counts.get(plain, -1) + 1
        anchors[name] = f"{plain}-{count}" if count else plain
    return anchors


def files() -> dict[Path, str]:
    """What the pages are to be."""
    made = pages()
    texts: dict[Path, str] = {}
    titles: dict[str, str] = {}
    for page, names in made.items():
        path = DOCS / "reference" / f"{page}.md"
        head, mark, _ = path.read_text().partition(MARK)
        if not mark or not head.startswith("# "):
            raise SystemExit(f"{path} needs a title and, below its head, the line {MARK}")
        titles[page] = head.splitlines()[0].removeprefix("# ")
        texts[path] = f"{head}{MARK}\n\n{body(names)}\n"
    return {DOCS / "reference.md": index(made, titles), **texts}


def main() -> int:
    wanted = files()
    old = {path: path.read_text() if path.exists() else "" for path in wanted}
    differing = [path for path, text in wanted.items() if old[path] != text]
    if "--check" not in sys.argv[1:]:
        for path in differing:
            path.write_text(wanted[path])
        return 0
    for path in differing:
        print(f"{path.relative_to(DOCS.parent)} differs: run docs/make_reference.py")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

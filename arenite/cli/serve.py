"""`arenite serve`: a model behind the APIs that programs know, in memory that is planned."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import language, onnx, output, texts
from arenite.cli.options import AnyModelName, Loading, option, spread
from arenite.device.allocator import readable_nbytes
from arenite.device.cpu import share_heap
from arenite.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from arenite.serve.served_model import Served

MAX_KEYS = 1000
_log = logging.getLogger("arenite.serve")


@spread
def serve(
    model: AnyModelName = None,
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    slots: Annotated[
        int, typer.Option(min=1, metavar="TEXTS", help="Texts that are written at the same time.")
    ] = 4,
    queue: Annotated[
        int, typer.Option(min=0, metavar="TEXTS", help="Texts that may wait for a slot.")
    ] = 64,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What clients call the model.")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A key a line; a request must bring one.")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Let others in without a key, with --host.")
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Pages that may ask from a browser; *: all."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that the server is reached by."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="The longest that an answer may take.")
    ] = 600.0,
    max_body: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The largest request that is read; by default what a context may take, or 8 MiB.",
        ),
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="A JSON object for each request, to stderr.")
    ] = False,
    dim: onnx.Dims = None,
    loading: Loading,
) -> int:
    """Serve a model: OpenAI's and Ollama's APIs, or the Open Inference Protocol for an ONNX file.

    All memory is planned before the first request: SLOTS texts of up to --context tokens each. What
    does not fit waits, and when the queue is full is told to come back (429). The same seed gives
    the same text, whatever else is being served. A page to look at is at the address it prints.
    """
    try:
        from arenite.serve import server
        from arenite.serve.app import app_of, waiting_app
        from arenite.serve.guard import Rules
        from arenite.serve.logs import log_as_json
        from arenite.serve.served_model import resident_nbytes
    except ModuleNotFoundError as error:
        raise NotSupported(
            f"serving needs the package {error.name}: pip install 'arenite[serve]'"
        ) from None
    rules = Rules(
        keys=_keys(api_keys),
        origins=tuple(cors or ()),
        hosts=tuple(host_name or ()),
        timeout=timeout,
    )
    if json_logs:
        log_as_json()
    server.check_exposure(host, rules, open_to_all=open_to_all)
    _log.setLevel(logging.INFO)
    share_heap()
    server.import_requested_modules()
    program_nbytes = resident_nbytes()
    with server.bound_socket(host, port) as bound:
        with server.meanwhile(waiting_app(name or model or "", rules), bound):
            path = language.obtain(model, loading.offline)
            title = language.title(model, path)
            served = _served(path, name or title, loading, dim, slots, queue, max_body)
        served.program_nbytes = program_nbytes
        with served:
            place = f"http://{_shown(host)}:{bound.getsockname()[1]}"

            def ready() -> None:
                sizes = (served.plan.total_nbytes, program_nbytes, served.grammar_nbytes)
                model, program, grammar = map(readable_nbytes, sizes)
                tables = f" and {grammar} of grammar tables" if served.grammar_nbytes else ""
                tell = _log.info if json_logs else output.note
                tell(
                    f"{served.name} is served at {place} in {model}, beside {program} of the "
                    f"server itself{tables}; Ctrl-C ends it"
                )

            server.run(app_of(served, rules), bound, on_ready=ready)
    return output.EXIT_DONE


def _served(
    path: Path,
    name: str,
    loading: Loading,
    dims: Sequence[str] | None,
    slots: int,
    queue: int,
    max_body: str | None,
) -> Served:
    import arenite
    from arenite.frontends.language import LanguageFile
    from arenite.model import Model
    from arenite.program.options import parse_nbytes
    from arenite.serve.engine import Engine
    from arenite.serve.served_model import ServedArrays, ServedText

    limit = parse_nbytes(max_body)
    options = loading.given("offline")
    with language.showing_steps(name) as on_progress:
        if onnx.is_onnx(path):
            refused = [option(one) for one in ("context", "kv") if one in options]
            if refused:
                raise InvalidArgument(f"{', '.join(refused)} are for language models")
            model = Model.open(path)
            sizes: dict[str, Any] = dict(onnx.sizes_of(model, dims))
            plan = model.plan(memory=options.get("memory"), **sizes)
            program = model.compile(on_progress=on_progress, **options, **sizes)
            return ServedArrays(name, model, program, plan, queue=queue, max_body=limit)
        if dims:
            raise InvalidArgument(f"--dim is for ONNX models, and {path} is a language model")
        if LanguageFile.open(path).is_embedding:
            embedder = arenite.load(path, kind="language", on_progress=on_progress, **options)
            return ServedText(name, embedder, queue=queue, max_body=limit)
        engine = Engine(path, slots=slots, queue=queue, on_progress=on_progress, **options)
        return ServedText(name, engine, max_body=limit)


def _keys(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    keys = tuple(line.strip() for line in texts.read(path).splitlines() if line.strip())
    if not keys or len(keys) > MAX_KEYS or not all(key.isascii() for key in keys):
        raise InvalidArgument(f"--api-keys {path}: 1 to {MAX_KEYS} lines of ASCII are needed")
    return keys


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host

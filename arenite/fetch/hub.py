"""Files of Hugging Face repositories, fetched by huggingface_hub where it is installed.

It goes on with a download that broke off. What it says is ours to say: its progress is told as that
of any download, its retries are a step, its errors are one of ours.
"""

from __future__ import annotations

import inspect
import io
import logging
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arenite.errors import FileMissing, NotSupported
from arenite.fetch.source import OnProgress, Source

#: Where its repositories are, unless it is told otherwise.
ENDPOINT = "https://huggingface.co"
#: How long the first connection may take; the library would try for half a minute.
CONNECT_SECONDS = 10


def fetch_from_hub(source: Source, partial: Path, target: Path, on_progress: OnProgress) -> None:
    """Put all files of a source into `target`; `partial` keeps what came before a break."""
    try:
        import huggingface_hub
    except ImportError:
        raise NotSupported(
            f"{source.name} is fetched by huggingface_hub, which is not installed; "
            "pip install 'arenite[hub]'"
        ) from None
    endpoint = _endpoint()
    on_progress(f"asking {urlsplit(endpoint).hostname}", 0, None)
    _check_reachable(source, endpoint)
    paths = []
    for file in source.files:
        step = f"fetching {file.name}"
        try:
            with _quiet(on_progress):
                fetched = huggingface_hub.hf_hub_download(
                    source.origin,
                    file.member,
                    revision=source.version,
                    local_dir=partial / "hub",
                    **_bars(huggingface_hub, step, on_progress),
                )
        # Its errors come from its HTTP library, its own modules and the system.
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise FileMissing(
                f"{source.name}: {file.member} can't be fetched: {said[0]}"
            ) from error
        paths.append(Path(fetched))
    target.mkdir(mode=0o700, exist_ok=True)
    for path, file in zip(paths, source.files, strict=True):
        path.rename(target / file.name)


def _endpoint() -> str:
    try:
        from huggingface_hub.constants import ENDPOINT as CHOSEN
    except ImportError:  # another version of it
        return ENDPOINT
    return str(CHOSEN)


def _check_reachable(source: Source, endpoint: str) -> None:
    """FileMissing where there is no way to the host: without this it is tried again and again. A
    proxy knows ways of its own."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    proxies = urllib.request.getproxies()
    is_direct = urllib.request.proxy_bypass(host) or not {parts.scheme, "all"} & {*proxies}
    if not is_direct:
        return
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise FileMissing(
            f"{source.name} can't be fetched: {host} can't be reached "
            f"({error.strerror or error}); is there a network?"
        ) from None


@contextmanager
def _quiet(on_progress: OnProgress) -> Iterator[None]:
    """Inside, the library's log is not printed; a retry is told as a step."""
    log = logging.getLogger("huggingface_hub")
    handlers, propagates = log.handlers, log.propagate
    log.handlers, log.propagate = [_Steps(on_progress)], False
    try:
        yield
    finally:
        log.handlers, log.propagate = handlers, propagates


class _Steps(logging.Handler):
    """What the library logs, as the step that goes on."""

    def __init__(self, on_progress: OnProgress) -> None:
        super().__init__(logging.WARNING)
        self._on_progress = on_progress

    def emit(self, record: logging.LogRecord) -> None:
        self._on_progress(" ".join(record.getMessage().split()), 0, None)


def _bars(library: Any, step: str, on_progress: OnProgress) -> dict[str, Any]:
    """Options that have the library tell its progress to us; older versions show it themselves."""
    takes = inspect.signature(library.hf_hub_download).parameters
    if "tqdm_class" not in takes:
        return {}

    class Bar(library.utils.tqdm):  # type: ignore[misc]
        """A bar that is drawn nowhere, and whose steps are told."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.done, self.whole = options.get("initial") or 0, options.get("total")
            super().__init__(*given, **{**options, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            self.done += int(n or 0)
            on_progress(step, self.done, self.whole)
            return None

    return {"tqdm_class": Bar}

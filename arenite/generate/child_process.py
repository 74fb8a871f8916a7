"""What a first load does besides loading is done by a child process, whose memory ends with it.

Planning and compiling build many graphs, and what they leave of a heap is never quite given back.
The child leaves what it found in the cache, and this process loads from there; where there is no
folder for it, the child hands its own cache over. Nothing depends on the child: where it fails or
cannot be started, the work is done here, and errors are raised here.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arenite.pipeline.identity import identity
from arenite.program import cache

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.frontends.language import LanguageFile
    from arenite.generate.model import Settings

#: Bytes of weights, or tensors, from which on a process of its own is worth its start. What
#: compiling leaves grows by 1 MiB for some ten tensors.
LEAST_NBYTES = 32 * 2**20
LEAST_TENSORS = 64

#: How lines begin that the child writes; others are somebody else's.
TOLD = "arenite: "

_log = logging.getLogger("arenite.generate")


def prepare_in_child(
    file: LanguageFile,
    options: dict[str, Any],
    on_progress: OnProgress | None,
    settings: type[Settings] | None = None,
) -> None:
    """Have the cache filled with what loading the file with these options needs, unless it was;
    `settings` of another class than `Settings` take them."""
    store = cache.default()
    is_small = file.nbytes < LEAST_NBYTES and len(file.tensors) < LEAST_TENSORS
    if is_small or not sys.executable:
        return
    given = json.dumps([options, *_name_of(settings)], default=str)
    key = cache.key_of("prepared", *identity(), file.key, given)
    if store.get(key) is not None:
        return
    if store.folder is not None:
        is_done = _is_done(file.path, given, None, on_progress)
    else:
        # Memory by a number that the child has too, which is gone when both have closed it.
        handed = os.memfd_create("arenite")
        try:
            is_done = _is_done(file.path, given, handed, on_progress)
            if is_done:
                store.receive(handed)
        finally:
            os.close(handed)
    if is_done:
        store.put(key, {"prepared": b"yes"})


def _name_of(settings: type[Settings] | None) -> tuple[str, str]:
    """The module and the name of a class of settings."""
    from arenite.generate.model import Settings

    chosen = settings or Settings
    return chosen.__module__, chosen.__name__


def _is_done(path: str, options: str, handed: int | None, on_progress: OnProgress | None) -> bool:
    import subprocess

    # The child finds packages exactly where this process does.
    code = f"import sys; sys.path[:] = {sys.path!r}; from arenite.generate import child_process; "
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", code + "child_process.main()", path, options, str(handed or "")],
            pass_fds=() if handed is None else (handed,),
            stdin=subprocess.PIPE,  # ends with this process, however it ends
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError as problem:
        _log.info("no child can be started: %s", problem)
        return False
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if on_progress is not None and line.startswith(TOLD):
                on_progress(*json.loads(line.removeprefix(TOLD)))
        return child.wait() == 0
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def end_with_parent() -> None:
    """Have this process end when standard input does: nobody waits for its work any more."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """The child: plan and compile; what goes on is told on standard output, a line a step."""
    end_with_parent()
    from arenite.frontends.language import LanguageFile
    from arenite.generate.model import COMPILING
    from arenite.pipeline import compile_graph

    def tell(step: str, done: int, total: int | None) -> None:
        print(TOLD + json.dumps([step, done, total]), flush=True)

    path, (options, module, name), handed = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    tell("planning", 0, None)
    settings: Settings = getattr(import_module(module), name)(LanguageFile.open(path), **options)
    if settings.memory is not None:
        _ = settings.plan
    compile_graph(
        settings.interface,
        settings.options,
        on_progress=lambda done, total: tell(COMPILING, done, total),
    ).close()
    if handed:
        cache.default().hand_over(int(handed))

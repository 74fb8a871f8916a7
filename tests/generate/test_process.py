"""A language model and its process: forks, signals, a parent that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.generate.gguf_models import Shape, write_model

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import arenite
from arenite.errors import RunFailed

model = arenite.load(sys.argv[1], context=64, block=8, threads=2)
tokens = [1, 33, 5, 90, 12, 7, 64, 3, 77, 21, 9, 40]
expected = model.session().feed(tokens)

def in_child(body):
    '''Fork; how a child that runs `body` ends. One that hangs is killed by its alarm.'''
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            body()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "one.gguf"
    write_model(path, Shape(n_layers=1, weights=("Q8_0",)))
    return path


def passes(script: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + script, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_forked_in_the_middle_of_a_feed_feeds(path: Path) -> None:
    passes(
        """
def child():
    session = model.session()
    session.feed(tokens[:5])
    np.testing.assert_array_equal(session.feed(tokens[5:]), expected)

# Between two blocks of another thread's feed, and in the middle of one.
run, there = model.executable, threading.Event()
class Stuck:
    failure = None
    def __call__(self, *arrays):
        run(*arrays)
        there.set()
        time.sleep(10**6)
    def use_state_set(self, number):
        run.use_state_set(number)
model.executable = Stuck()
threading.Thread(target=lambda: model.session().feed(tokens[::-1]), daemon=True).start()
assert there.wait(60)
model.executable = run
assert in_child(child) == 0
""",
        path,
    )
    passes(
        """
def child():
    session = model.session()
    session.feed(tokens[:5])
    np.testing.assert_array_equal(session.feed(tokens[5:]), expected)

over = threading.Event()
def feed():
    while not over.is_set():
        model.session().feed(tokens[::-1])
threads = [threading.Thread(target=feed) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(6):
    assert in_child(child) == 0
over.set()
for thread in threads:
    thread.join()
np.testing.assert_array_equal(model.session().feed(tokens), expected)
""",
        path,
    )


def test_a_signal_handler_that_feeds_in_the_middle_of_a_feed_is_told(path: Path) -> None:
    passes(
        """
told, fed = [], 0
def handler(*_):
    global fed
    try:
        model.session().feed([5, 6])
        fed += 1
    except RunFailed as error:
        told.append(str(error))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while len(told) < 3:
    np.testing.assert_array_equal(model.session().feed(tokens), expected)
signal.setitimer(signal.ITIMER_REAL, 0)
assert all("on this very thread" in one for one in told)
np.testing.assert_array_equal(model.session().feed(tokens), expected)
""",
        path,
    )


# The child that prepares


def children_of(process: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def is_there(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_preparing_child_ends_with_its_parent_however_that_ends(
    path: Path, tmp_path: Path
) -> None:
    code = "from arenite.generate.child_process import _is_done; "
    given = json.dumps([{}, "arenite.generate.model", "Settings"])
    code += f"_is_done({str(path)!r}, {given!r}, None, None)"
    environment = {**os.environ, "ARENITE_CACHE_DIR": str(tmp_path / "cache")}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    stopped: list[int] = []
    prepares: list[int] = []
    try:
        # Its compilers are stopped, so that its work has no end.
        while not stopped:
            assert parent.poll() is None
            prepares = children_of(parent.pid)
            stopped = [one for child in prepares for one in children_of(child)]
            time.sleep(0.005)
        for one in stopped:
            os.kill(one, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        for _ in range(3000):
            if not any(map(is_there, prepares)):
                break
            time.sleep(0.01)
        assert not any(map(is_there, prepares))
    finally:
        parent.kill()
        for one in [*stopped, *prepares]:
            if is_there(one):
                os.kill(one, signal.SIGKILL)

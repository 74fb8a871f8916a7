"""Mapped files that change under a program: one clear error, never a dead process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.generate.gguf_models import Shape, write_model

HEAD = """
import os, signal, sys
import numpy as np
import arenite
from arenite.errors import FileChanged
from arenite.frontends.gguf import GgufFile
from arenite.frontends.safetensors import SafetensorsFile
from arenite.tensor.creation import buffer, wrap

path = sys.argv[1]

def opened():
    file = (GgufFile if path.endswith(".gguf") else SafetensorsFile).open(path)
    return wrap(buffer(file.tensors["w"].buffer()))

def cut():
    os.truncate(path, os.path.getsize(path) // 2)

def rewrite():
    with open(path, "r+b") as file:
        file.seek(-4000, 2)
        file.write(bytes(4000))

def replace():
    with open(path, "rb") as file:
        content = file.read()
    with open(path + ".new", "wb") as file:
        file.write(content[:100])
    os.replace(path + ".new", path)

def changed(body):
    try:
        body()
    except FileChanged as error:
        assert path in str(error), error
        return True
    return False
"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
    )


def passes(script: str, *arguments: object) -> None:
    done = run(script, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(params=["safetensors", "gguf"])
def weights(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with a tensor "w" of 512 x 512 numbers, 1 MiB."""
    path = tmp_path / f"weights.{request.param}"
    numbers = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32)
    if request.param == "safetensors":
        save_file({"w": numbers}, path)
    else:
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("w", numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


def test_a_program_over_a_file_that_changes(weights: Path) -> None:
    passes(
        """
content = open(path, "rb").read()
x = np.ones((8, 512), np.float32)
for is_packed in (False, True):
    for change in (cut, rewrite, replace):
        with open(path + ".new", "wb") as file:
            file.write(content)
        os.replace(path + ".new", path)
        w = opened()
        def body(x):
            return x @ w if is_packed else (w * x[:1]).sum()
        with arenite.compile(body, arenite.spec((8, 512)), threads=1) as function:
            before = np.array(function(x))
            change()
            if change is replace:
                np.testing.assert_array_equal(function(x), before)
            else:
                assert changed(lambda: function(x)) and changed(lambda: function(x))
                assert changed(lambda: function.profile(x))
        # Before the first run: nothing of a file that changed is ever packed.
        os.replace(path, path + ".old")
        with open(path, "wb") as file:
            file.write(content)
        w = opened()
        change()
        def first():
            with arenite.compile(body, arenite.spec((8, 512)), threads=1) as function:
                return np.array(function(x))
        if change is replace:
            np.testing.assert_array_equal(first(), before)
        else:
            assert changed(first), change
""",
        weights,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_is_cut_in_the_middle_of_a_run(weights: Path, threads: int) -> None:
    passes(
        """
import faulthandler
from arenite.backends.cpu.driver.file_guard import file_guard
calls = 0
def between(x):
    global calls
    calls += 1
    if calls == 2:
        cut()
    return x
w = opened()
def body(x):
    y = arenite.host_call(between, x, x)
    return (w * y).sum(axis=1)
x = np.ones(512, np.float32)
function = arenite.compile(body, arenite.spec((512,)), threads=int(sys.argv[2]))
right = np.array(w).astype(np.float64).sum(axis=1)
np.testing.assert_allclose(function(x), right, atol=1e-3)
faulthandler.enable()  # over the guard's own handler
assert changed(lambda: function(x))
guard = file_guard()
assert calls == 2 and sum(map(guard._faults, guard._slots.values())) > 0
faulthandler.disable()
assert changed(lambda: function(x)) and calls == 2
function.close()
""",
        weights,
        threads,
    )


def test_a_run_that_could_not_read_a_file_that_is_as_it_was_spoils_the_program(
    weights: Path,
) -> None:
    passes(
        """
from arenite.errors import RunFailed
times, nbytes, calls = os.stat(path).st_mtime_ns, os.path.getsize(path), 0
def before(x):
    global calls
    calls += 1
    if calls == 1:
        cut()
    return x
def after(y):  # as if a disk had not given the bytes
    os.truncate(path, nbytes)
    os.utime(path, ns=(times, times))
    return y
w = opened()
def body(x):
    sums = (w * arenite.host_call(before, x, x)).sum(axis=1)
    return arenite.host_call(after, sums, sums)
x = np.ones(512, np.float32)
with arenite.compile(body, arenite.spec((512,)), threads=1) as function:
    try:
        function(x)
        raise AssertionError
    except FileChanged as error:
        assert path in str(error) and "could not be read" in str(error), error
    try:
        function(x)
        raise AssertionError
    except RunFailed as error:
        assert path in str(error) and "reset()" in str(error), error
    function.reset()
    half = np.array(w).astype(np.float64).sum(axis=1)
    assert half[0] and not half[-1]  # the mapping is the file's again
    np.testing.assert_allclose(function(x), half, atol=1e-3)
""",
        weights,
    )


@pytest.mark.parametrize("has_run", [False, True])
def test_outside_of_runs_the_signal_does_what_it_always_did(weights: Path, has_run: bool) -> None:
    done = run(
        f"""
w = opened()
if {has_run}:
    arenite.compile(lambda x: w * x, arenite.spec((512,)), threads=1)(np.ones(512, np.float32))
array = w.__array__()
assert not array.flags.owndata
cut()
import faulthandler
faulthandler.enable()
print(array[-1].sum())
""",
        weights,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")
    assert done.stderr.startswith("Fatal Python error: Bus error")


def test_a_handler_that_was_there_before_still_hears_of_signals(weights: Path) -> None:
    passes(
        """
heard = []
signal.signal(signal.SIGBUS, lambda number, _: heard.append(number))
w = opened()
function = arenite.compile(lambda x: w * x, arenite.spec((512,)), threads=1)
function(np.ones(512, np.float32))
os.kill(os.getpid(), signal.SIGBUS)
assert heard == [signal.SIGBUS]
function(np.ones(512, np.float32))
os.kill(os.getpid(), signal.SIGBUS)
assert heard == [signal.SIGBUS] * 2
""",
        weights,
    )


def test_a_run_after_a_fork_is_guarded_and_a_view_in_the_child_is_not(weights: Path) -> None:
    passes(
        """
import threading
w = opened()
inside, go_on = threading.Event(), threading.Event()
def between(x):
    inside.set()
    go_on.wait(60)
    return x
def body(x):
    return w * arenite.host_call(between, x, x)
function = arenite.compile(body, arenite.spec((512,)), threads=1)
threading.excepthook = lambda _: None  # FileChanged, in the end
thread = threading.Thread(target=function, args=(np.ones(512, np.float32),))
thread.start()
inside.wait(60)
array = w.__array__()
child = os.fork()
if child == 0:
    cut()
    print(array[-1].sum())  # nobody reads the file in this process: no zeros instead
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGBUS
go_on.set()
thread.join()
""",
        weights,
    )


# Language models


def test_a_language_model_whose_file_changes(tmp_path: Path) -> None:
    shape = Shape(n_layers=1, weights=("Q8_0",))
    other = Shape(n_layers=1, weights=("Q8_0",), seed=2)
    for name, one in (("model", shape), ("other", other)):
        write_model(tmp_path / f"{name}.gguf", one)
    passes(
        """
tokens = [1, 33, 5, 90]
original = open(path, "rb").read()
def put(content):
    with open(path, "wb") as file:  # in place
        file.write(content)
other = open(sys.argv[2], "rb").read()
assert len(other) == len(original)

def load(path, **more):
    return arenite.load(path, context=32, block=8, threads=1, **more)

with load(path) as model, load(sys.argv[2]) as model2:
    first, second = model.session().feed(tokens), model2.session().feed(tokens)
assert np.abs(first - second).max() > 0.01

for change in (cut, rewrite, lambda: put(other)):
    with load(path) as model:
        session = model.session()
        session.feed(tokens[:2])
        change()
        assert changed(lambda: session.feed(tokens[2:]))
        assert changed(lambda: model.session().feed(tokens))
        assert changed(lambda: model.tokenizer)
    put(original)

with load(path) as model:
    session = model.session()
    session.feed(tokens[:2])
    replace()
    np.testing.assert_allclose(session.feed(tokens[2:]), first, atol=1e-3)
    assert model.tokenizer.encode("sand")

# What was packed of one content is never used for another, in this process or a later one.
for content, right in ((original, first), (other, second), (original, first)):
    put(content)
    with load(path) as model:
        np.testing.assert_array_equal(model.session().feed(tokens), right)

# Between the plan and the packing.
def cut_now(step, done, total):
    if step == "planning":
        cut()
assert changed(lambda: load(path, on_progress=cut_now))
""",
        tmp_path / "model.gguf",
        tmp_path / "other.gguf",
    )

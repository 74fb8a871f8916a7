"""Writes `docs/array-api.md`: which cases of the array API consortium's suite pass, and why others
do not.

    .venv/bin/python docs/make_array_api.py            write the page
    .venv/bin/python docs/make_array_api.py --check    say whether the page differs, and exit with 1
    .venv/bin/python docs/make_array_api.py --run SUITE    run the suite there first (minutes)

The suite's results are kept in `docs/array-api-results.json`, and the list of what is not expected
to pass, each group with its reason, in `tests/tensor/array_api_xfails.txt`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).parent
LIST = DOCS.parent / "tests" / "tensor" / "array_api_xfails.txt"
RESULTS = DOCS / "array-api-results.json"
PAGE = DOCS / "array-api.md"
VERSION = "2024.12"
#: Examples that each case of the suite is tried with.
EXAMPLES = 2

HEAD = """# The array API

`arenite` is a namespace of the [array API standard](https://data-apis.org/array-api/{version}/):
`x.__array_namespace__()` is the package, dtypes are `arenite.float32` and so on, and
`arenite.linalg` and `arenite.fft` are its extensions. Written by `docs/make_array_api.py` from the
results of the consortium's own test suite, each case with {examples} examples.

```python
import arenite

def softmax(x):
    xp = x.__array_namespace__()
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)

softmax(arenite.asarray([1.0, 2.0, 3.0])).numpy()
```

Tensors are lazy: what is asked for is computed when its numbers, or sizes that depend on them, are
needed. Small arrays share programs: code that runs step by step compiles each kind of step once.
Dtypes are promoted by the standard's rules, and beyond these by NumPy's: an integer and a float
give a float, and functions for floats take integers.

NumPy computes `linalg.eigh`, `eigvalsh`, `svd`, `svdvals` and what is made of them (`pinv`,
`matrix_rank`, the norms 2, -2 and "nuc"), and `det`, `inv`, `solve`, `cholesky`, `qr` and `slogdet`
of complex matrices, when a program comes there; of real matrices the latter are compiled.
"""


def reasons(text: str) -> dict[str, str]:
    """The cases of the list, each with its reason: the comment above its group."""
    found: dict[str, str] = {}
    reason: list[str] = []
    is_open = False
    for line in text.splitlines():
        if line.startswith("#"):
            reason = [*(reason if is_open else []), line.lstrip("# ")]
            is_open = True
        elif line.strip():
            if not reason:
                raise SystemExit(f"{line} stands on the list without a reason")
            found[line] = " ".join(reason)
            is_open = False
        else:
            reason, is_open = [], False
    return found


def page(results: dict[str, dict[str, int]], listed: dict[str, str]) -> str:
    """The page, from the results and the list."""
    total = Counter[str]()
    lines = ["| cases of | pass | listed | skipped by the suite |", "|---|---|---|---|"]
    for name, counts in sorted(results.items()):
        total.update(counts)
        row = (counts.get(kind, 0) for kind in ("passed", "xfailed", "skipped"))
        lines.append(f"| {name} | {' | '.join(map(str, row))} |")
    sums = (total[kind] for kind in ("passed", "xfailed", "skipped"))
    lines.append(f"| all | {' | '.join(map(str, sums))} |")
    parts = [HEAD.format(version=VERSION, examples=EXAMPLES), "## Results", "\n".join(lines)]
    parts += ["## What is listed, and why"]
    groups: dict[str, list[str]] = {}
    for case, reason in listed.items():
        groups.setdefault(reason, []).append(case.partition("::")[2])
    for reason, cases in groups.items():
        parts += [reason, "\n".join(f"- `{case}`" for case in cases)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def run_suite(suite: Path) -> dict[str, dict[str, int]]:
    """Counts of outcomes for each file of the suite; a case that fails ends it."""
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "arenite",
        "ARRAY_API_TESTS_VERSION": VERSION,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short"]
        command += ["--rootdir", str(suite), "-c", str(suite / "pytest.ini")]
        command += ["--disable-deadline", "--derandomize", f"--max-examples={EXAMPLES}"]
        command += ["--xfails-file", str(LIST), str(suite / "array_api_tests")]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    found: dict[str, Counter[str]] = {}
    outcome = re.compile(r"(test_\w+)\.py::.* (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b")
    names = {"XFAIL": "xfailed", "XPASS": "xfailed"}
    for line in done.stdout.splitlines():
        match = outcome.search(line)
        if match and "[" in line.rpartition("%")[0][-6:]:
            kind = names.get(match[2], match[2].lower())
            found.setdefault(match[1], Counter())[kind] += 1
    failed = [name for name, counts in found.items() if counts["failed"] or counts["error"]]
    if failed or not found:
        print(done.stdout[-8000:], done.stderr[-2000:])
        raise SystemExit(f"cases fail that are not listed: {', '.join(failed) or 'all'}")
    return {name: dict(counts) for name, counts in sorted(found.items())}


def main() -> None:
    if "--run" in sys.argv:
        suite = Path(sys.argv[sys.argv.index("--run") + 1]).resolve()
        RESULTS.write_text(json.dumps(run_suite(suite), indent=1) + "\n")
    text = page(json.loads(RESULTS.read_text()), reasons(LIST.read_text()))
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            print("docs/array-api.md differs: run docs/make_array_api.py")
            raise SystemExit(1)
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()

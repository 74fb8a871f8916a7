"""Write docs/operators.md: which ONNX operators are read, by ONNX's own suite.

python docs/make_operators.py
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import onnx
import onnx.defs

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from arenite.frontends.onnx import operators  # noqa: E402
from arenite.frontends.onnx.registry import OPERATORS  # noqa: E402
from arenite.frontends.onnx.shapes import ALWAYS_FOLDED  # noqa: E402
from tests.frontends.onnx.suite import cases  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
REFUSED = ROOT / "tests" / "frontends" / "onnx" / "refused.json"

HEAD = """# ONNX operators

Operator sets 7 to {newest}. Every node case of the suite in onnx {version} is compiled and run by
the tests: **{passed} of {total} pass, {refused} are refused, none is wrong**. An operator that nobody
handles is refused when a model is loaded, together with all others of the file. "how" says whether
an operator has code of its own here, or is read as the function by which the standard defines it.

| operator | domain | how | cases | passed |
|---|---|---|--:|--:|
"""

NOTES = """
## Judged with other bounds than the suite's

{rounded}

## Refused

| case | reason |
|---|---|
"""


def page() -> str:
    """The whole page."""
    operators.load()
    refused: dict[str, str] = json.loads(REFUSED.read_text())
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    found = cases()
    for name, case in found.items():
        node = case.model.graph.node[0]
        key = (node.domain, node.op_type)
        if name.endswith("_expanded"):  # of an operator that the case has taken apart
            continue
        counts[key][0] += 1
        counts[key][1] += name not in refused
    rows = []
    for domain, op in sorted(known() | set(counts), key=lambda pair: (pair[0], pair[1])):
        total, passed = counts.get((domain, op), (0, 0))
        handled = (domain, op) in OPERATORS or (not domain and op in ALWAYS_FOLDED)
        how = "own" if handled else "function"
        rows.append(f"| {op} | {domain or 'ai.onnx'} | {how} | {total or ''} | {passed or ''} |")
    from tests.frontends.onnx.suite import ROUNDED

    bounds = "\n".join(f"- `{part}`: rtol {rtol}, atol {atol}" for part, rtol, atol in ROUNDED)
    head = HEAD.format(
        newest=onnx.defs.onnx_opset_version(),
        version=onnx.__version__,
        passed=len(found) - len(refused),
        total=len(found),
        refused=len(refused),
    )
    listed = [f"| {name} | {reason} |" for name, reason in sorted(refused.items())]
    return head + "\n".join(rows) + "\n" + NOTES.format(rounded=bounds) + "\n".join(listed) + "\n"


def known() -> set[tuple[str, str]]:
    """Operators with a handler, and those that the standard defines by functions."""
    found = set(OPERATORS)
    for schema in onnx.defs.get_all_schemas():
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        if schema.has_function or schema.has_context_dependent_function:
            found.add((domain, schema.name))
    return found


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PAGE.write_text(page())

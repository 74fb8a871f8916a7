"""Pages in a real browser: assertions run inside, and what they find is read from the DOM."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from arenite.memory import MemoryPlan
from arenite.memory.page import SCRIPTS, STYLES, page_data
from arenite.show import document, read_part

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser here: apt-get install chromium"
)
HERE = Path(__file__).parent


def failures(
    plan: MemoryPlan,
    script: str,
    expected: Any,
    folder: Path,
    *,
    title: str = "",
    width: int = 1300,
    is_dark: bool = False,
) -> tuple[list[str], int]:
    """What `script` objects to in the page of a plan, and how much it looked at. It gets `expected`
    as EXPECTED and says `check(what, is, should)`."""
    data = page_data(plan, title)
    test = "\n".join(
        [
            (HERE / "checks.js").read_text(),
            f"const EXPECTED = {json.dumps(expected)};".replace("<", "\\u003c"),
            f"run(() => {{\n{(HERE / script).read_text()}\n}});",
        ]
    )
    text = document(data["title"], data, map(read_part, STYLES), [*map(read_part, SCRIPTS), test])
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    found = re.search(
        r'<pre id="checks">(.*?)</pre>', dumped(page, folder, width, is_dark), re.DOTALL
    )
    assert found is not None, "the page did not come to its checks"
    told = json.loads(html.unescape(found[1]))
    return told["failures"], told["n"]


def dumped(page: Path, folder: Path, width: int, is_dark: bool) -> str:
    """The DOM of a page after its scripts have run."""
    assert CHROMIUM is not None
    # Its sandbox does not work for root, and in many containers for nobody.
    options = "--headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=600"
    line = [CHROMIUM, *options.split(), f"--user-data-dir={folder / 'profile'}"]
    line += [f"--window-size={width},1000", "--host-resolver-rules=MAP * ~NOTFOUND"]
    line += [f"--blink-settings=preferredColorScheme={0 if is_dark else 1}", "--dump-dom"]
    ran = subprocess.run(
        [*line, page.as_uri()], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout

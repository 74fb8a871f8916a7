"""A browser that is driven over its own protocol: pages are opened, typed into and looked at."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.show.browser import CHROMIUM


class Page:
    """One page of a browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.errors: list[str] = []
        for part in ("Page", "Runtime", "Log"):
            self._call(f"{part}.enable")

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        """Whatever a console would show as an error."""
        is_error = (
            method == "Runtime.exceptionThrown"
            or (method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"))
            or (method == "Log.entryAdded" and told["entry"]["level"] == "error")
        )
        if is_error:
            self.errors.append(json.dumps(told)[:500])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 2**16)
            assert part, "the browser has ended"
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def open(
        self, url: str, *, width: int = 1200, height: int = 800, is_dark: bool = False
    ) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """What an expression is in the page; a promise is waited for."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 60.0) -> None:
        """Until an expression is true."""
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < until, f"{expression} did not come true; {self.errors}"
            time.sleep(0.05)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def wheel(self, x: float, y: float, by: float, *, ctrl: bool = False) -> None:
        """Turn the wheel over a point of the window."""
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=2 * ctrl)

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """From one point of the window to another."""
        self._mouse("mousePressed", x, y, button="left", clickCount=1)
        for share in (0.5, 1):
            at = (x + (to_x - x) * share, y + (to_y - y) * share)
            self._mouse("mouseMoved", *at, button="left", buttons=1)
        self._mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key)
        more = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a browser that ends with the block."""
    assert CHROMIUM is not None
    our_end, to_browser = os.pipe()
    from_browser, its_end = os.pipe()
    # It reads commands from descriptor 3 and writes to 4.
    line = (
        f'exec "$0" --headless --no-sandbox --disable-gpu --no-first-run --disable-sync '
        "--disable-background-networking --disable-component-update --disable-quic "
        f'--remote-debugging-pipe --user-data-dir="{folder / "profile"}" '
        f"3<&{our_end} 4>&{its_end}"
    )
    process = subprocess.Popen(
        ["bash", "-c", line, CHROMIUM],
        pass_fds=(our_end, its_end),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(our_end)
    os.close(its_end)
    try:
        yield Page(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)

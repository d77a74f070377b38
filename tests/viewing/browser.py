"""A page in headless Chromium, with a pointer: spoken to through the pipe of its DevTools protocol.

    with Browser(Path("norm.html")) as page:
        page.hover('section[aria-label="PTX"] .mark')
        page.value("document.title")
        page.screenshot(Path("norm.png"))

    python -m tests.viewing.browser norm.html norm.png SELECTOR       a screenshot while the pointer is on a line

Source: the Chrome DevTools Protocol (Target, Page, Runtime, Input), whose messages are JSON with a zero byte at the end.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)
_DEADLINE_S = 60


class Browser:
    """One page. width, height: of the window, in pixels of CSS."""

    def __init__(self, path: Path, width: int = 1500, height: int = 760) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        pipes = (*os.pipe(), *os.pipe())
        for_browser, self._to, self._from, by_browser = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes)
        for end in pipes:
            os.close(end)
        command = f'exec "$@" 3<&{for_browser} 4>&{by_browser}'  # what it reads and writes by
        options = [
            f"--user-data-dir={self._profile.name}",
            f"--window-size={width},{height}",
            "--remote-debugging-pipe",
        ]
        self._process = subprocess.Popen(
            ["timeout", str(_DEADLINE_S), "bash", "-c", command, "bash", str(CHROMIUM), *_OPTIONS, *options],
            pass_fds=(for_browser, by_browser), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(for_browser), os.close(by_browser)
        self._read, self._numbers, self._session = b"", itertools.count(1), {}
        url = path.resolve().as_uri()
        target = self._call("Target.createTarget", url=url)["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        while not self.value(f"document.readyState === 'complete' && location.href === {json.dumps(url)}"):
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._to), os.close(self._from)
        self._profile.cleanup()

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript has as its value."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise ValueError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def hover(self, selector: str, *, click: bool = False) -> None:
        """Move the pointer onto the first element that a selector of CSS finds, which must be in view."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = (self.value(f"{box}.{edge} + 8") for edge in ("left", "top"))
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        os.write(
            self._to,
            json.dumps({"id": number, "method": method, "params": parameters, **self._session}).encode() + b"\0",
        )
        while (answer := self._message()).get("id") != number:
            pass
        if "error" in answer:
            raise ValueError(f"{method}: {answer['error']}")
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._from, 1 << 16)
            if not more:
                raise ConnectionError("the browser has ended")
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


if __name__ == "__main__":
    with Browser(Path(sys.argv[1])) as shown:
        shown.hover(sys.argv[3], click=True)
        shown.screenshot(Path(sys.argv[2]))

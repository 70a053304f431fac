"""A real Chromium without a window, driven by its own DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import websocket

PATIENCE = 20.0
WIDTH = 900


class PageLeftError(Exception):
    """The page was left for another one while it was asked something."""


class Page:
    """A tab of the browser."""

    def __init__(self, address: str) -> None:
        self.socket = websocket.create_connection(address, timeout=PATIENCE, suppress_origin=True)
        self.number = 0
        #: What the console of a page would show in red, since the last look at it.
        self.complaints: list[str] = []

    def close(self) -> None:
        self.socket.close()

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while (said := json.loads(self.socket.recv())).get("id") != self.number:
            self.complaints += complaint(said["method"], said["params"])
        if said.get("error", {}).get("message") == "Inspected target navigated or closed":
            raise PageLeftError
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    def evaluate(self, script: str) -> Any:
        said = self.tell("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def open(self, url: str) -> None:
        self.tell("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def wait_for(self, script: str) -> None:
        """Ask the page until *script* is true."""
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while not self._is_true(script):
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {script}"
            pause.wait(0.02)

    def _is_true(self, script: str) -> bool:
        try:
            return bool(self.evaluate(script))
        except PageLeftError:
            return False

    def wait_for_text(self, selector: str, text: str) -> None:
        self.wait_for(f"document.querySelector({json.dumps(selector)}).innerText === {json.dumps(text)}")

    def text(self, selector: str) -> str:
        said: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return said

    def hasten(self) -> None:
        """What the pages opened from now on do every few seconds they do ten times as often."""
        self.tell("Page.enable")
        script = "setTimeout = (later => (what, after) => later(what, after / 10))(setTimeout)"
        self.tell("Page.addScriptToEvaluateOnNewDocument", source=script)

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of it, as a hand does."""
        self.press(selector)()

    def press(self, selector: str) -> Callable[[], object]:
        """Press the mouse in the middle of it. Gives what releases it there."""
        # It moves while styles and deferred scripts come, and the mouse would meet what is there instead.
        self.wait_for("document.readyState === 'complete'")
        script = f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})"
        self.evaluate(script)
        where = self.evaluate(
            f"(box => ({{x: box.x + box.width / 2, y: box.y + box.height / 2}}))"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        mouse = functools.partial(self.tell, "Input.dispatchMouseEvent", button="left", clickCount=1, **where)
        mouse(type="mousePressed")
        return functools.partial(mouse, type="mouseReleased")

    def press_enter(self) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        for what in ("keyDown", "keyUp"):
            self.tell("Input.dispatchKeyEvent", type=what, **key)

    def resize(self, width: int, height: int = 1100) -> None:
        """As wide as that, also where a window can't be: a phone's 390 pixels."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def prefer(self, scheme: str) -> None:
        """What the page is told of the person's choice: ``light`` or ``dark``; "": nothing."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", features=features)

    def photograph(self, file: Path, *selectors: str, margin: int = 0) -> None:
        """Write a picture of the whole page into *file*.

        With *selectors*, only the smallest part that shows their elements, and *margin* pixels around it.
        """
        # A picture beyond the window has no scrollbar, and a page without one is wider.
        self.tell("Emulation.setScrollbarsHidden", hidden=True)
        clip = {"clip": self._box(selectors, margin) | {"scale": 1}} if selectors else {}
        shot = self.tell("Page.captureScreenshot", captureBeyondViewport=True, **clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _box(self, selectors: Sequence[str], margin: int) -> dict[str, float]:
        """Return the box around the elements of *selectors*, in whole pixels of the page."""
        box: dict[str, float] = self.evaluate(
            f"""(boxes => {{
                const x = Math.floor(Math.min(...boxes.map(box => box.left)) - {margin}),
                      y = Math.floor(Math.min(...boxes.map(box => box.top)) - {margin}),
                      width = Math.ceil(Math.max(...boxes.map(box => box.right)) + {margin}) - x,
                      height = Math.ceil(Math.max(...boxes.map(box => box.bottom)) + {margin}) - y;
                return {{x: x + scrollX, y: y + scrollY, width, height}};
            }})({json.dumps(selectors)}.map(it => document.querySelector(it).getBoundingClientRect()))"""
        )
        return box


def complaint(event: str, told: dict[str, Any]) -> list[str]:
    """What *event* says went wrong in a page: one text, or none."""
    if event == "Runtime.exceptionThrown":
        return [str(told["exceptionDetails"])]
    if event == "Runtime.consoleAPICalled" and told["type"] in {"error", "assert"}:
        return [str(told["args"])]
    if event == "Log.entryAdded" and told["entry"]["level"] == "error":
        entry = told["entry"]
        # Every browser asks for it once, and not every site has one.
        asked = entry.get("url", "")
        return [] if asked.endswith("/favicon.ico") else [f"{entry['text']} {asked}"]
    return []


class Browser:
    """Chromium, whose tabs know nothing of each other."""

    def __init__(self, address: str, path: str) -> None:
        """*address*: of its DevTools. *path*: there, of the browser itself."""
        self.address, self.path = address, path

    @contextlib.contextmanager
    def tab(self, width: int = WIDTH) -> Iterator[Page]:
        """A tab with cookies and connections of its own, which end with it."""
        with contextlib.closing(Page(f"{self.address}{self.path}")) as control:
            context = control.tell("Target.createBrowserContext")["browserContextId"]
            target = control.tell("Target.createTarget", url="about:blank", browserContextId=context)
            try:
                address = f"{self.address}/devtools/page/{target['targetId']}"
                with contextlib.closing(Page(address)) as page:
                    for domain in ("Runtime", "Log"):
                        page.tell(f"{domain}.enable")
                    page.resize(width)
                    yield page
            finally:
                control.tell("Target.disposeBrowserContext", browserContextId=context)


@contextlib.contextmanager
def running_chromium() -> Iterator[Browser]:
    command = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not command:
        pytest.fail("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="distlock-chromium-", ignore_cleanup_errors=True) as home:
        # Its sandbox refuses to run as root, and the only page that it opens is ours.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        options += [f"--user-data-dir={home}", "--remote-debugging-port=0"]
        with subprocess.Popen(
            [command, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield find_browser(Path(home), process)
            finally:
                # Asked to end, it ends its helpers first; killed, they would go on writing into its home.
                process.terminate()
                process.wait(PATIENCE)


def find_browser(home: Path, process: subprocess.Popen[bytes]) -> Browser:
    """At the port that it has chosen and written down."""
    written, deadline, pause = home / "DevToolsActivePort", time.monotonic() + PATIENCE, threading.Event()
    while not written.exists() or len(written.read_text().split()) < 2:
        assert process.poll() is None, "Chromium did not start."
        assert time.monotonic() < deadline, f"Chromium is not ready after {PATIENCE:.0f} s."
        pause.wait(0.02)
    port, path = written.read_text().split()
    return Browser(f"ws://127.0.0.1:{port}", path)


@contextlib.contextmanager
def open_browser(width: int = WIDTH) -> Iterator[Page]:
    """One tab of a browser of its own."""
    with running_chromium() as chromium, chromium.tab(width) as page:
        yield page

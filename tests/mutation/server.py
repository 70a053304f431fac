"""A process that runs tests in processes that it forks, and the other end of its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any

from tests.mutation.tree import Tree
from tests.mutation.warm import PIPES

#: Seconds until all is loaded and collected, on a busy machine.
LONGEST_START = 600
LONGEST_END = 60


class Server:
    """`tests.mutation.cold`, or pytest with `tests.mutation.warm`, that collects *collected*."""

    def __init__(self, tree: Tree, *collected: str) -> None:
        self._files = tree.place.parent / "run"
        self._files.mkdir(parents=True, exist_ok=True)
        theirs, self._requests = os.pipe()
        answers, theirs_too = os.pipe()
        program = ["-m", "tests.mutation.cold"]
        if collected:
            program = [
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                "-p",
                "tests.mutation.warm",
                *collected,
            ]
        with (self._files / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *program],
                cwd=tree.place,
                env={**tree.environment(), PIPES: f"{theirs},{theirs_too}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs, theirs_too],
                # Ctrl-C in the terminal reaches only us: see `close`.
                start_new_session=True,
            )
        os.close(theirs)
        os.close(theirs_too)
        #: The process that runs tests now.
        self._child: int | None = None
        self._answers: Queue[str] = Queue()
        Thread(target=self._read, args=[answers], daemon=True).start()
        said = self._answers.get(timeout=LONGEST_START)
        if said != "ready":
            self._process.kill()
            self._process.wait()
        assert said == "ready", (self._files / "output").read_text("utf-8", "replace")[-3000:]

    def _read(self, answers: int) -> None:
        with os.fdopen(answers, encoding="utf-8") as lines:
            for line in lines:
                self._answers.put(line.strip())
        self._answers.put("")

    def run(
        self, tests: list[str], path: str, timeout: int, limit: float, environment: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Run *tests* with *path* as it is now. *timeout*: seconds of a test, and *limit* of all.

        Returns what tests.mutation.warm writes; an empty dict if the process ended without it, and None if it
        did not end.
        """
        result = self._files / "result.json"
        result.unlink(missing_ok=True)
        request = {"tests": tests, "path": path, "timeout": timeout, "result": str(result)}
        request["environment"] = environment
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        self._child = child = int(self._answers.get(timeout=LONGEST_START))
        ended = True
        try:
            self._answers.get(timeout=limit)
        except Empty:
            ended = False
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            self._answers.get(timeout=LONGEST_START)
        self._child = None
        if not ended:
            return None
        return json.loads(result.read_text()) if result.exists() else {}

    def close(self) -> None:
        os.close(self._requests)
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        try:
            # It kills what the run has left, and ends without another request.
            self._process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

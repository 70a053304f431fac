"""A plugin of pytest that notes which test runs which line, for Python as for Lua.

coverage.py notes the lines of Python, and the plugin tells it the test. It tells forked children and other
processes, too, by the configuration that these get. A Lua script has a mark before each statement that writes
into the log of its Redis, and the time in the log says which test ran.
"""

from __future__ import annotations

import json
import os
import re
import time
from bisect import bisect_right
from collections.abc import Generator
from datetime import datetime
from pathlib import Path

import pytest

#: The variable by which coverage.py in other processes finds its configuration.
CONFIGURATION = "COVERAGE_PROCESS_CONFIG"
#: Where the plugin writes its notes.
NOTES = "MUTATION_NOTES"
#: Where the logs of Redis are.
LOGS = "MUTATION_LOGS"

_MARK = re.compile(r"^\d+:\w (\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}) # @([\w.]+):(\d+)", re.MULTILINE)


class Recorder:
    def __init__(self, notes: Path) -> None:
        from coverage import Coverage

        self._coverage = Coverage.current()
        self._notes = notes.open("a", encoding="utf-8")
        self._failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid)
            # Forked children and other processes begin with a copy of this configuration.
            self._coverage.set_option("run:context", item.nodeid)
            os.environ[CONFIGURATION] = self._coverage.config.serialize()
        self._failed = False
        began = time.time()
        try:
            return (yield)
        finally:
            note = {"test": item.nodeid, "began": began, "ended": time.time(), "failed": self._failed}
            self._notes.write(json.dumps(note) + "\n")
            self._notes.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.outcome != "passed"


def pytest_configure(config: pytest.Config) -> None:
    if NOTES in os.environ:
        config.pluginmanager.register(Recorder(Path(os.environ[NOTES])))


def seconds_of_tests(notes: Path) -> dict[str, float]:
    """Return how long each test took that has passed."""
    seconds = {}
    for line in notes.read_text("utf-8").splitlines():
        note = json.loads(line)
        if not note["failed"]:
            seconds[note["test"]] = note["ended"] - note["began"]
    return seconds


def lines_of_lua(notes: Path, logs: Path) -> dict[str, list[str]]:
    """Return the tests that ran each statement of the scripts, by "<file>:<line>"."""
    read = [json.loads(line) for line in notes.read_text("utf-8").splitlines()]
    began = [note["began"] - 0.001 for note in read]
    found: dict[str, set[str]] = {}
    for log in logs.iterdir():
        last: tuple[str, str] | None = None
        for when, file, number in _MARK.findall(log.read_text("utf-8", "replace")):
            if last is None or last[0] != when:
                at = datetime.strptime(f"{when} +0000", "%d %b %Y %H:%M:%S.%f %z").timestamp()
                last = (when, read[max(0, bisect_right(began, at) - 1)]["test"])
            found.setdefault(f"{file}:{number}", set()).add(last[1])
    return {line: sorted(tests) for line, tests in found.items()}

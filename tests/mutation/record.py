"""Run the tests once, and keep which of them runs which line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

from tests.mutation.lua_mutants import begin_of_statement, with_marks
from tests.mutation.recording import LOGS, NOTES, lines_of_lua, seconds_of_tests
from tests.mutation.tree import KEPT, ROOT, Tree

LUA = "distlock/backends/redis/lua"
#: The tests that are recorded together. Scripts are recorded without Python, which would take longer.
GROUPS = {
    # Fifty thousand names would write millions of marks.
    "lua": ["tests/backends/redis", "--ignore=tests/backends/redis/test_many_names.py"],
    "engine": ["tests/engine"],
    "core": ["tests/core"],
    "fence": ["tests/fence"],
    "rows": ["tests/backends/database", "tests/transactions", "tests/django_distlock/checks/test_fences.py"],
    "web": ["tests/web"],
    "guarding": [
        "tests/django_distlock/guarding",
        "tests/django_distlock/rules",
        "tests/flask_distlock/guarding",
    ],
    # These tests show how guards and transactions work together.
    "sessions": ["tests/batches", "tests/flask_distlock/sql"],
}
_SETTINGS = """
[run]
source = distlock
data_file = {data}
parallel = true
patch = subprocess, fork, _exit
disable_warnings = trace-changed, no-data-collected, module-not-measured, module-not-imported
"""


def record(group: str) -> None:
    """Run the tests of *group*, and keep what they ran in `KEPT`."""
    place = KEPT / group
    shutil.rmtree(place, ignore_errors=True)
    logs = place / "logs"
    logs.mkdir(parents=True)
    tree = Tree(KEPT / "tree")
    tree.update()
    shutil.copytree(tree.place / "distlock", place / "distlock")
    environment = {**tree.environment(), NOTES: str(place / "notes.jsonl")}
    command = [str(ROOT / ".venv/bin/python")]
    if group == "lua":
        for script in sorted((ROOT / LUA).glob("*.lua")):
            tree.write(f"{LUA}/{script.name}", with_marks(script.name, script.read_text("utf-8")))
        environment |= {LOGS: str(logs), "PATH": f"{_wrapper(place)}:{environment['PATH']}"}
    else:
        settings = place / "coveragerc"
        settings.write_text(_SETTINGS.format(data=place / "coverage"))
        command += ["-m", "coverage", "run", f"--rcfile={settings}"]
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.recording"]
    if group != "lua":
        # The time in a log doesn't say which of two tests ran a script. Most tests wait more than they work.
        command += ["-n", "2", "--dist", "loadfile"]
    subprocess.run([*command, *GROUPS[group]], cwd=tree.place, env=environment, check=False)
    if group == "lua":
        for script in (ROOT / LUA).glob("*.lua"):
            tree.restore(f"{LUA}/{script.name}")
        (place / "lines.json").write_text(json.dumps(lines_of_lua(place / "notes.jsonl", logs)))
        shutil.rmtree(logs)
    else:
        combine = [*command[:3], "combine", f"--rcfile={place / 'coveragerc'}", "-q"]
        subprocess.run(combine, cwd=tree.place, check=True)


def _wrapper(place: Path) -> Path:
    """Return a folder with a redis-server whose log is kept."""
    server = shutil.which("redis-server")
    if server is None:
        sys.exit("redis-server is not installed: apt-get install redis-server")
    folder = place / "bin"
    folder.mkdir()
    wrapper = folder / "redis-server"
    wrapper.write_text(f'#!/bin/sh\nTZ=UTC exec {server} "$@" --logfile "${LOGS}/$$.log"\n')
    wrapper.chmod(0o755)
    return folder


class Recorded:
    """What `record` has kept, for the lines that *code* has now."""

    def __init__(self, code: Path = ROOT) -> None:
        from coverage import CoverageData

        self._code = code
        self._data: dict[str, CoverageData] = {}
        self._lua: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        for group in GROUPS:
            place = KEPT / group
            if (place / "notes.jsonl").exists():
                self.seconds |= seconds_of_tests(place / "notes.jsonl")
            if (place / "lines.json").exists():
                self._lua = json.loads((place / "lines.json").read_text())
            if (place / "coverage").exists():
                self._data[group] = CoverageData(str(place / "coverage"))
                self._data[group].read()
        self._by_file: dict[str, dict[int, set[str]]] = {}

    def tests_of(self, path: str, first: int, last: int) -> list[str]:
        """Return the tests that run a line of *path* from *first* to *last*, the quickest first."""
        lines = self._lines(path)
        tests = set().union(*(lines.get(number, set()) for number in range(first, last + 1)))
        if not tests and path.endswith(".lua"):
            tests = lines.get(begin_of_statement((self._code / path).read_text("utf-8"), first), set())
        return self._sorted(tests)

    def tests_of_file(self, path: str) -> list[str]:
        """Return the tests that run any line of *path*, the quickest first."""
        return self._sorted(set().union(*self._lines(path).values()))

    def _sorted(self, tests: set[str]) -> list[str]:
        known = [test for test in tests if test in self.seconds]
        return sorted(known, key=lambda test: self.seconds[test])

    def runs_before_tests(self, path: str, first: int, last: int) -> bool:
        """Return whether such a line runs while modules are imported, those of tests among them."""
        lines = self._lines(path)
        return any("" in lines.get(number, ()) for number in range(first, last + 1))

    def _lines(self, path: str) -> dict[int, set[str]]:
        if path in self._by_file:
            return self._by_file[path]
        lines = self._by_file[path] = {}
        now = (self._code / path).read_text("utf-8")
        if path.endswith(".lua"):
            moved = moved_lines(KEPT / "lua" / path, now)
            for place, tests in self._lua.items():
                script, _, line = place.partition(":")
                if path == f"{LUA}/{script}" and int(line) in moved:
                    lines[moved[int(line)]] = set(tests)
        for group, data in self._data.items():
            moved = moved_lines(KEPT / group / path, now)
            for file in data.measured_files():
                if file.endswith(f"/{path}"):
                    for number, contexts in data.contexts_by_lineno(file).items():
                        names = {part for context in contexts for part in context.split("|")}
                        if number in moved:
                            lines.setdefault(moved[number], set()).update(names)
        return lines


def moved_lines(before: Path, now: str) -> dict[int, int]:
    """Return which line of the text *now* each line of the file *before* has become, if it is unchanged."""
    lines = before.read_text("utf-8").splitlines() if before.exists() else []
    matcher = SequenceMatcher(None, lines, now.splitlines(), autojunk=False)
    return {
        block.a + number + 1: block.b + number + 1
        for block in matcher.get_matching_blocks()
        for number in range(block.size)
    }

"""A plugin of pytest that collects the tests once, and runs them often, in processes that it forks.

To load the libraries and to collect takes longer than most tests. So a process is forked when that is done,
and gets the changed code then: functions get other instructions, and scripts of Redis are read anew. What
runs while a module is imported can't be changed so; for that there is `tests.mutation.cold`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import psutil
import pytest

from tests.mutation.kept_databases import use_kept_databases

#: The file descriptors of requests and answers, as "<read>,<write>".
PIPES = "MUTATION_PIPES"
#: See prctl(2).
_PR_SET_CHILD_SUBREAPER = 36


class Watcher:
    """Runs *tests* in their order, and notes the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.failed: str | None = None
        self.timed_out = False
        self.passed = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.places.get(item.nodeid, len(self.places)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
            self.timed_out = "Timeout (>" in report.longreprtext
        self.passed += report.when == "call" and report.passed

    def write(self, result: str, code: int) -> None:
        said = {"code": code, "failed": self.failed, "timed_out": self.timed_out, "passed": self.passed}
        Path(result).write_text(json.dumps(said))


class Warm:
    """Forks a process for each request, in place of the run of the tests."""

    def __init__(self, read: int, write: int) -> None:
        self._requests = os.fdopen(read, encoding="utf-8")
        self._answers = os.fdopen(write, "w", encoding="utf-8", buffering=1)
        self._watcher: Watcher | None = None
        self._result = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if threading.active_count() != 1:
            pytest.exit(f"Threads run before the first test: {threading.enumerate()}", 3)
        functions = _functions(Path.cwd())
        adopt_orphans()
        gc.freeze()
        self._answers.write("ready\n")
        for line in self._requests:
            request = json.loads(line)
            child = os.fork()
            if child == 0:
                self._begin(request, session, functions)
                return None
            self._answers.write(f"{child}\n")
            os.waitpid(child, 0)
            end_leftovers()
            self._answers.write("ended\n")
        return True

    def _begin(
        self, request: dict[str, Any], session: pytest.Session, functions: dict[str, list[FunctionType]]
    ) -> None:
        os.setsid()
        os.environ.update(request["environment"])
        use_kept_databases()
        self._result = request["result"]
        if path := request["path"]:
            try:
                if path.endswith(".lua"):
                    read_scripts_anew()
                else:
                    change(Path(path), functions.get(path, []))
            except ValueError:
                # A function has other variables of the function around it than before.
                Path(self._result).write_text(json.dumps({"cold": True}))
                os._exit(0)
        self._watcher = Watcher(request["tests"])
        session.config.pluginmanager.register(self._watcher)
        session.items = [item for item in session.items if item.nodeid in self._watcher.places]
        self._watcher.pytest_collection_modifyitems(session.items)
        session.config.option.timeout = request["timeout"]
        session.config._env_timeout = float(request["timeout"])  # type: ignore[attr-defined]
        assert session.items, "none of the tests is there"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self._watcher is not None:
            self._watcher.write(self._result, int(exitstatus))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._watcher is not None:
            os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    if PIPES in os.environ:
        read, write = os.environ.pop(PIPES).split(",")
        config.pluginmanager.register(Warm(int(read), int(write)))


def adopt_orphans() -> None:
    """Become the parent of each process that loses its own one, as far as this one is its ancestor."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers() -> None:
    """Kill what a run has started and left behind, as a test does that was killed: see `adopt_orphans`."""
    while left := psutil.Process().children():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
            # Its children become ours when it has ended.
            with suppress(ChildProcessError):
                os.waitpid(process.pid, 0)


def is_importing_code(before: str, after: str) -> bool:
    """Return whether two texts of a module differ in what runs while it is imported."""
    return _skeleton(compile(before, "module", "exec")) != _skeleton(compile(after, "module", "exec"))


def _skeleton(code: CodeType) -> tuple[object, ...]:
    """Return what *code* runs, without the functions that it makes."""
    inside = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inside.append(None if constant.co_flags & CO_NEWLOCALS else _skeleton(constant))
        else:
            inside.append((type(constant), constant))
    return (code.co_code, code.co_names, tuple(inside))


def _functions(root: Path) -> dict[str, list[FunctionType]]:
    """Return the functions that exist, by the path of their file below *root*."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{root}/distlock/"):
            found.setdefault(one.__code__.co_filename.removeprefix(f"{root}/"), []).append(one)
    return found


def change(path: Path, functions: list[FunctionType]) -> None:
    """Give *functions* of the module at *path* the code that it has now.

    Raises ValueError if one can't have it.
    """
    module = compile(path.read_text("utf-8"), str(path.absolute()), "exec")
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _inside(module)}
    for function in functions:
        code = function.__code__
        new = codes.get((code.co_qualname, code.co_firstlineno))
        if new is None:
            raise ValueError(code)
        function.__code__ = new


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def read_scripts_anew() -> None:
    """Let the scripts of Redis be what their files say now."""
    for name in ("distlock.backends.redis.scripts", "distlock.backends.redis.latches"):
        old = sys.modules.get(name)
        if old is None:
            continue
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        new = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(new)
        for attribute, value in vars(new).items():
            _take_over(old, attribute, value)
    from distlock.backends.redis import scripts

    scripts._head.cache_clear()


def _take_over(module: ModuleType, attribute: str, value: object) -> None:
    before = getattr(module, attribute)
    if isinstance(value, str | bytes) and not attribute.startswith("__"):
        setattr(module, attribute, value)
    elif type(value).__name__ == "Script":
        vars(before).update(vars(value))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if type(one).__name__ == "Script":
                vars(before[key]).update(vars(one))

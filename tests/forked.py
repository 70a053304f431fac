"""Processes for tests, each forked from one that has loaded its framework: that takes longer than most run.

``python -m tests.forked FD MODULE …`` loads the modules, and makes a process of whatever comes through FD.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.redis_server import eventually

#: What is loaded beforehand. Not both in one process: a site has one of them.
FRAMEWORKS = {
    "django": ("django.core.management", "django.core.wsgi", "psycopg", "pymysql", "django_distlock"),
    "flask": ("flask_sqlalchemy", "psycopg", "pymysql", "flask_distlock"),
}
LONGEST = 65536


class Nursery:
    """The process that others are forked from. It has one thread, and ends with the tests."""

    def __init__(self, *modules: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mutex = threading.Lock()
        command = [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *modules]
        # Without what pytest-django has put there for itself.
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], env=environment, pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def fork(self, arguments: tuple[str, ...], *files: int) -> int:
        """*files*: its standard input, output and, unless it is the tests' own, standard error."""
        with self._mutex:
            socket.send_fds(self._socket, [json.dumps(arguments).encode()], files)
            answer = self._socket.recv(LONGEST)
        assert answer, f"nothing can be forked: {self._process.wait()}"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


@cache
def nursery(framework: str) -> Nursery:
    made = Nursery(*FRAMEWORKS[framework])
    atexit.register(made.close)
    return made


class Forked:
    """``python -m MODULE ARGUMENT …`` with pipes, as `subprocess.Popen` has it."""

    def __init__(self, framework: str, module: str, *arguments: str) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.pid = nursery(framework).fork((module, *arguments), theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = open(ours_in, "w", encoding="utf-8"), open(ours_out, encoding="utf-8")  # noqa: SIM115

    def tell(self, line: str) -> None:
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP. Returns when every thread of it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(self._stands_still, f"{self.pid} stands still")

    def _stands_still(self) -> bool:
        tasks = [(task / "stat").read_text() for task in Path(f"/proc/{self.pid}/task").iterdir()]
        return all(task.rpartition(")")[2].split()[0] == "T" for task in tasks)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As `subprocess.Popen.kill`: nothing happens where it has ended by itself."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it. Returns when it has let go of what it had open."""
        if self.stdout.closed:
            return  # Its number may be another's by now.
        self.kill()
        self.stdout.read()
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()


def errors_of(framework: str, code: str) -> str:
    """What ``python -c CODE`` writes to standard error. AssertionError, with that, where it fails."""
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors, open(ours, encoding="utf-8") as said:
        nursery(framework).fork(("-c", f"{code}\nprint('ended well')"), theirs, theirs, errors.fileno())
        os.close(theirs)
        ended_well = said.read().endswith("ended well\n")
        errors.seek(0)
        told = errors.read()
    assert ended_well, told
    return told


def serve(requests: socket.socket) -> None:
    # Nobody waits for them: their pipes say when they have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, LONGEST, 3)
        if not request:
            return
        if (child := os.fork()) == 0:
            requests.close()
            become(json.loads(request), *files)
        for file in files:
            os.close(file)
        requests.send(str(child).encode())


def become(arguments: list[str], *files: int) -> None:
    """Run ``main()`` of a module, or the code behind ``-c``, as the process that it would be by itself."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout = io.TextIOWrapper(io.FileIO(0)), io.TextIOWrapper(io.FileIO(1, "w"))
        sys.argv = arguments
        if arguments[0] == "-c":
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(arguments[1], vars(sys.modules["__main__"]))
        else:
            importlib.import_module(arguments[0]).main()
        sys.stdout.flush()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        for module in sys.argv[2:]:
            importlib.import_module(module)
        assert threading.active_count() == 1, "a fork would leave threads behind"
        serve(requests)


if __name__ == "__main__":
    main()

"""Processes for tests, each forked from one that has loaded its framework: that takes longer than most run.

``python -m tests.forked FD MODULE …`` loads the modules, and makes a process of whatever comes through FD.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
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
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[1], pass_fds=[theirs.fileno()])
        theirs.close()

    def fork(self, module: str, arguments: tuple[str, ...], stdin: int, stdout: int) -> int:
        with self._mutex:
            socket.send_fds(self._socket, [json.dumps([module, *arguments]).encode()], [stdin, stdout])
            answer = self._socket.recv(LONGEST)
        assert answer, f"nothing can be forked: {self._process.wait()}"
        return int(answer)


@cache
def nursery(framework: str) -> Nursery:
    return Nursery(*FRAMEWORKS[framework])


class Forked:
    """``python -m MODULE ARGUMENT …`` with pipes, as `subprocess.Popen` has it."""

    def __init__(self, framework: str, module: str, *arguments: str) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.pid = nursery(framework).fork(module, arguments, theirs_in, theirs_out)
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
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        """Kill it. Returns when it has let go of what it had open."""
        if self.stdout.closed:
            return  # Its number may be another's by now.
        self.kill()
        self.stdout.read()
        self.stdout.close()
        try:
            self.stdin.close()
        except BrokenPipeError:
            pass


def serve(requests: socket.socket) -> None:
    # Nobody waits for them: their pipes say when they have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, LONGEST, 2)
        if not request:
            return
        if (child := os.fork()) == 0:
            requests.close()
            become(json.loads(request), *files)
        for file in files:
            os.close(file)
        requests.send(str(child).encode())


def become(arguments: list[str], stdin: int, stdout: int) -> None:
    """Run ``main()`` of a module as the process that it would be by itself."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate((stdin, stdout)):
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout = io.TextIOWrapper(io.FileIO(0)), io.TextIOWrapper(io.FileIO(1, "w"))
        sys.argv = arguments
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

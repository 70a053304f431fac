"""A second process for tests: `Process` controls it, and `Worker` runs inside it.

They exchange lines of JSON. The process acquires and releases on command, can be stopped, and can be killed.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import distlock
from distlock import clock
from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.testing.waits import engine_of, wait_for_latch_waiters

#: Seconds within which a process answers, unless it waits for a lock on purpose.
PATIENCE = 30.0


class Process:
    """A process with a client of *url*, in which tests call methods of `Worker` by name."""

    def __init__(self, url: str, **options: Any) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "distlock.testing.process", url, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._popen.pid
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready = False

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._answers.put(line)

    def begin(self, command: str, *arguments: Any) -> None:
        """Send a command, and do not wait for its answer. The first time, wait until the process is ready."""
        if not self._ready:
            self._ready = True
            self._answer(PATIENCE)
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._popen.stdin.flush()

    def end(self, patience: float = PATIENCE) -> Any:
        """Return the answer to the command of `begin`.

        Raises TimeoutError after *patience* seconds; AssertionError for a `LockError` in the process.
        """
        answer = self._answer(patience)
        if "error" in answer:
            raise AssertionError(f"{answer['error']}: {answer['message']}")
        return answer["answer"]

    def do(self, command: str, *arguments: Any) -> Any:
        self.begin(command, *arguments)
        return self.end()

    def _answer(self, patience: float) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(self._answers.get(timeout=patience))
        except queue.Empty:
            raise TimeoutError(f"Process {self.pid} did not answer within {patience:g} seconds.") from None
        return answer

    def stop(self) -> None:
        """Stop the process, and wait until it has stopped: right after the signal it could acquire a lock.

        Return at once if it is stopped already.
        """
        self._popen.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process. When this returns, none of its code runs any more."""
        self._popen.kill()
        self._popen.wait()
        self._close()

    def finish(self) -> None:
        """Let the process end by itself. Kill it if that takes longer than `PATIENCE` seconds."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGCONT)
            assert self._popen.stdin is not None
            self._popen.stdin.close()
            try:
                self._popen.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        self._close()

    def _close(self) -> None:
        # The reader ends with the pipe, which a forked child may keep open. So wait for a limited time.
        self._reader.join(1.0)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None and not (pipe is self._popen.stdout and self._reader.is_alive()):
                pipe.close()


class Worker:
    """The commands of a `Process`, carried out inside it."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.locks = distlock.connect(url, **options)
        self.grants: list[Any] = []

    def acquire(self, name: str, timeout: float) -> dict[str, Any] | None:
        grant = self.locks.lock(name).acquire(timeout=timeout)
        if grant is None:
            return None
        self.grants.append(grant)
        return {"fence": list(grant.fence), "at": clock.now()}

    def read(self, name: str, timeout: float) -> bool:
        return self._keep(self.locks.read_lock(name).acquire(timeout=timeout))

    def permits(self, name: str, limit: int, permits: int, timeout: float) -> bool:
        return self._keep(self.locks.semaphore(name, limit=limit, permits=permits).acquire(timeout=timeout))

    def count_down(self, name: str) -> int:
        return self.locks.latch(name).count_down()

    def wait_for_latch(self, name: str, timeout: float) -> None:
        """Begin to wait for a latch. Return when the client has asked for the state of the latch."""
        ThreadPoolExecutor(1).submit(self.locks.latch(name).wait, timeout)
        wait_for_latch_waiters(self.locks, 1)

    def _keep(self, grant: Any) -> bool:
        if grant is not None:
            self.grants.append(grant)
        return grant is not None

    def begin_to_acquire(self, name: str, timeout: float) -> None:
        """Begin to acquire. Return when the lock service has queued the request, or after *timeout*."""
        backend, queued = engine_of(self.locks).backend, threading.Event()
        original = backend.request

        def request(request: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
            answer = original(request, deadline)
            if isinstance(answer, Queued):
                queued.set()
            return answer

        backend.request = request  # type: ignore[method-assign]
        self.waiting = ThreadPoolExecutor(1).submit(self.acquire, name, timeout)
        queued.wait(timeout)

    def end_acquire(self) -> dict[str, Any] | None:
        """Return the result of the acquisition that `begin_to_acquire` began, when it has ended."""
        return self.waiting.result()

    def release(self) -> float:
        at = clock.now()
        self.grants.pop().release()
        return at

    def state(self) -> dict[str, Any]:
        grant = self.grants[-1]
        return {"lost": grant.lost, "released": grant.released}

    def hammer(self, name: str, rounds: int, path: str) -> list[dict[str, Any]]:
        """Add 1 to the number in the file *path* in each round, under the lock *name*: read, then write.

        Return the times and the fence of each round.
        """
        records = []
        lock = self.locks.lock(name, timeout=60)
        for _ in range(rounds):
            asked = clock.now()
            with lock as grant:
                granted = clock.now()
                with open(path, encoding="ascii") as file:
                    number = int(file.read())
                with open(path, "w", encoding="ascii") as file:
                    file.write(str(number + 1))
                released = clock.now()
            records.append(
                {"asked": asked, "granted": granted, "released": released, "fence": list(grant.fence)}
            )
        return records

    def fork(self, name: str) -> dict[str, Any]:
        """Fork a child that lives until it is killed, while this process holds *name*.

        Return the child's process id; whether the grant is lost in the child; and whether the child could
        acquire *name* before it released the grant.
        """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            grant = self.grants[-1]
            seen = {"lost": grant.lost, "took": self.locks.lock(name).acquire(blocking=False) is not None}
            grant.release()
            os.write(writer, json.dumps(seen).encode())
            os.close(writer)
            while True:
                signal.pause()
        os.close(writer)
        with open(reader, encoding="utf-8") as file:
            seen = json.loads(file.read())
        return {"child": pid, **seen}

    def close(self) -> None:
        self.locks.close()


def main() -> None:
    worker = Worker(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(worker, command)(*arguments)}
        except distlock.LockError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

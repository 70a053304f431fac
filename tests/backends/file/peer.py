"""Another process with a file backend of its own: it does what it is told, a line of JSON at a time.

Run as a script it is that process; imported, it is the string that holds it.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import distlock
from distlock.backends.base import EXCLUSIVE, PERMIT, READ, Acquired, Busy, LockRequest, Mode, Queued
from distlock.backends.inspectable import StatusRow
from tests.backend_class import backend_class

FileBackend = backend_class("file:///nowhere")

#: Seconds after which a test gives up on something that should happen soon.
PATIENCE = 20.0


class Peer:
    """The string."""

    def __init__(self, url: str, *arguments: str, wrapper: tuple[str, ...] = ()) -> None:
        command = [*wrapper, sys.executable, "-m", "tests.backends.file.peer", url, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = ThreadPoolExecutor(1)
        self.pid: int = self._reader.submit(self._read).result(PATIENCE)

    def begin(self, command: str, *arguments: Any) -> Future[Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()
        return self._reader.submit(self._read)

    def do(self, command: str, *arguments: Any) -> Any:
        return self.begin(command, *arguments).result(PATIENCE)

    def stop(self) -> None:
        """SIGSTOP. Returns when every thread of it stands still, at once if it does already."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.shutdown()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"process {self.process.pid} ended")
        return json.loads(line)


class Sink:
    def __init__(self) -> None:
        self.told = threading.Event()
        self.hints = 0

    def notified(self, key: str) -> None:
        self.hints += 1
        self.told.set()

    def handed_off(self, key: str, token: str, number: int, sent: float) -> None:
        self.notified(key)

    def lost(self, key: str, token: str) -> None:
        self.told.set()

    def release_requested(self, key: str, token: str) -> None:
        self.told.set()

    def missed_notifications(self) -> None:
        self.told.set()

    def reconnected(self) -> None: ...


class Puppet:
    """What is at the other end of the string."""

    def __init__(self, url: str) -> None:
        self.sink = Sink()
        self.backend = FileBackend(url)
        self.backend.open(self.sink)
        self.url = url
        self.requests: dict[str, LockRequest] = {}
        self.grants: list[distlock.Grant] = []

    def request(self, key: str, wait: bool = True) -> str:
        request = self.requests.setdefault(key, LockRequest(key, secrets.token_hex(16), 10.0, 1, wait))
        answer = self.backend.request(request)
        if isinstance(answer, Busy):
            del self.requests[key]
        return type(answer).__name__

    def poll(self, key: str) -> float:
        """After how many seconds a queued ask had better ask again."""
        answer = self.backend.request(self.requests[key])
        assert isinstance(answer, Queued)
        return answer.poll

    def acquire(self, key: str, mode: Mode = EXCLUSIVE, limit: int = 1, permits: int = 1) -> dict[str, Any]:
        """Wait for *key* as the engine does, but for hints alone: no poll comes to help."""
        request = LockRequest(key, secrets.token_hex(16), 10.0, 1, True, mode, limit, permits)
        request = self.requests.setdefault(key, request)
        while True:
            self.sink.told.clear()
            answer = self.backend.request(request)
            if isinstance(answer, Acquired):
                return {"fence": answer.number, "at": time.monotonic(), "followed": answer.followed}
            self.sink.told.wait()

    def downgrade(self, key: str) -> bool:
        return self.backend.downgrade(self.requests[key])

    def release(self, key: str) -> dict[str, Any]:
        at = time.monotonic()
        return {"released": self.backend.release(self.requests.pop(key)), "at": at}

    def locked(self, key: str) -> bool:
        return self.backend.locked(key)

    def renew(self, key: str) -> bool:
        return self.backend.renew([self.requests[key]])[0]

    def hammer(self, key: str, rounds: int, path: str) -> list[dict[str, float]]:
        """Add *rounds* to the number in the file at *path*: read, then write."""
        turns = []
        for _ in range(rounds):
            turn = self.acquire(key)
            with open(path, encoding="ascii") as file:
                number = int(file.read())
            with open(path, "w", encoding="ascii") as file:
                file.write(str(number + 1))
            turns.append({**turn, "released": self.release(key)["at"]})
        return turns

    def write_both(self, key: str, rounds: int, first: str, second: str) -> None:
        """Add one to the numbers in two files, which are the same wherever nobody writes."""
        for _ in range(rounds):
            self.acquire(key)
            for path in (first, second):
                number = int(Path(path).read_text(encoding="ascii"))
                os.sched_yield()
                Path(path).write_text(str(number + 1), encoding="ascii")
            self.release(key)

    def read_both(self, key: str, first: str, second: str, stop: str) -> dict[str, Any]:
        """Read the two numbers until *stop* exists. Returns those that differed, and how often it read."""
        torn, count = [], 0
        while not os.path.exists(stop):
            self.acquire(key, READ)
            seen = [Path(path).read_text(encoding="ascii") for path in (first, second)]
            self.release(key)
            count += 1
            if seen[0] != seen[1]:
                torn.append(seen)
        return {"torn": torn, "count": count}

    def use(self, key: str, rounds: int, limit: int, permits: int) -> list[dict[str, float]]:
        """Take *permits* of *limit* again and again. Returns when it had them."""
        turns = []
        for _ in range(rounds):
            turn = self.acquire(key, PERMIT, limit, permits)
            os.sched_yield()
            turns.append({"at": turn["at"], "released": self.release(key)["at"], "permits": permits})
        return turns

    def overtaken(self, key: str, path: str, stop: str) -> list[list[int]]:
        """Hold *key* again and again until *stop* exists; each time leave the fence in the file at *path*.

        Returns every pair of fences that shows that two held it at once, or in the wrong order.
        """
        wrong = []
        descriptor = os.open(path, os.O_RDWR)
        while not os.path.exists(stop):
            mine = self.acquire(key)["fence"]
            before = int.from_bytes(os.pread(descriptor, 8, 0), "big")
            os.pwrite(descriptor, mine.to_bytes(8, "big"), 0)
            os.sched_yield()
            after = int.from_bytes(os.pread(descriptor, 8, 0), "big")
            if before >= mine or after != mine:
                wrong.append([before, mine, after])
            self.release(key)
        os.close(descriptor)
        return wrong

    def disturbed(self, key: str, path: str, stop: str) -> list[list[int]]:
        """Read beside `overtaken` until *stop* exists. Returns what shows that a writer wrote meanwhile."""
        wrong = []
        descriptor = os.open(path, os.O_RDONLY)
        while not os.path.exists(stop):
            mine = self.acquire(key, READ)["fence"]
            before = int.from_bytes(os.pread(descriptor, 8, 0), "big")
            os.sched_yield()
            after = int.from_bytes(os.pread(descriptor, 8, 0), "big")
            if before != after or before >= mine:
                wrong.append([before, mine, after])
            self.release(key)
        os.close(descriptor)
        return wrong

    def announce(self, key: str) -> str:
        """Say something of *key*. Returns how others see this process."""
        self.backend.announce("web1", os.getpid(), [StatusRow(key, "shop.views.reduce", 1e9)], [], 600.0)
        return self.backend.process

    def hold_many(self, count: int) -> None:
        for number in range(count):
            assert self.request(f"shop:product_{number}") == "Acquired"

    def cpu(self, seconds: float) -> float:
        """CPU time, user and system, that this process uses while it waits for *seconds*."""
        before = time.process_time()
        threading.Event().wait(seconds)
        return time.process_time() - before

    def fork(self, then: str) -> dict[str, Any]:
        """Fork. The child says what it sees of our locks, and then does what *then* says."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            inherited = list(self.requests.values())
            seen = {
                "renewed": self.backend.renew(inherited),
                "released": [self.backend.release(request) for request in inherited],
                "took": [Puppet.took(self.backend, request.key) for request in inherited],
            }
            if then == "close":
                self.backend.close()
                os.closerange(3, writer)
            os.write(writer, json.dumps(seen).encode())
            os.close(writer)
            while then == "live":
                signal.pause()
            os._exit(0)
        os.close(writer)
        with open(reader, encoding="ascii") as file:
            seen = json.loads(file.read())
        if then != "live":
            os.waitpid(pid, 0)
        return {"pid": pid, **seen}

    @staticmethod
    def took(backend: FileBackend, key: str) -> str:
        return type(backend.request(LockRequest(key, secrets.token_hex(16), 10.0, 1, wait=False))).__name__

    def close_all_descriptors(self) -> None:
        os.closerange(3, 256)

    def limit_descriptors(self) -> None:
        # Descriptors are numbered from the lowest: none above those that are open now.
        highest = max(int(number) for number in os.listdir("/proc/self/fd"))
        for number in range(3, highest):
            if not os.path.lexists(f"/proc/self/fd/{number}"):
                os.dup2(0, number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))

    def become(self, user: int, group: int) -> None:
        """Another user, for good."""
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)

    def limit_threads(self) -> None:
        """Have no thread started any more: for any user but root."""
        resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))

    def unlimit_threads(self) -> None:
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    def acquire_within(self, name: str, seconds: float) -> dict[str, Any]:
        """What a user's own call does: with hints, polls and a time-out."""
        began = time.monotonic()
        grant = distlock.connect(self.url, prefix="shop").lock(name).acquire(timeout=seconds)
        if grant is not None:
            self.grants.append(grant)
        return {"fence": grant.fence.number if grant else None, "took": time.monotonic() - began}

    def stop_writing_halfway(self) -> None:
        """Be the writer of every shard, for good."""
        presence = self.backend._connect(threading.Lock())
        self.halfway = [presence.locks.writing(shard, 2.0) for shard in range(256)]
        for each in self.halfway:
            each.__enter__()

    def let_go(self) -> None:
        self.grants.pop().release()

    def pass_around(self, key: str, rounds: int) -> None:
        """Take *key* again and again, each time from ourselves: it is never free."""
        held = request = self.requests[key]
        for _ in range(rounds):
            request = LockRequest(key, secrets.token_hex(16), 10.0, 1)
            assert isinstance(self.backend.request(request), Queued)
            assert self.backend.release(held)
            assert isinstance(self.backend.request(request), Acquired)
            held = request
        self.requests[key] = held

    def release_refused(self, key: str) -> list[str]:
        try:
            return [str(self.backend.release(self.requests[key])), ""]
        except Exception as error:
            return [type(error).__name__, str(error)]

    def refused(self, key: str) -> list[str]:
        try:
            return [self.request(key), ""]
        except Exception as error:
            return [type(error).__name__, str(error)]


def main() -> None:
    puppet = Puppet(sys.argv[1])
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(puppet, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main()

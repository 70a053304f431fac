"""Another process, held on a string: it acquires and releases when it is told, and may be killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

#: Seconds within which a process answers, unless it waits for a lock on purpose.
PATIENCE = 30.0


class Process:
    def __init__(self, url: str, **options: Any) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "distlock.testing.worker", url, json.dumps(options)],
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
        """Tell it to do something, and do not wait."""
        if not self._ready:
            self._ready = True
            self._answer(PATIENCE)
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._popen.stdin.flush()

    def end(self, patience: float = PATIENCE) -> Any:
        """Wait for the answer. Raises TimeoutError, and AssertionError for an error in there."""
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
        """SIGSTOP. Returns when every thread of it stands still: the signal alone leaves time for a lock."""
        self._popen.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as the kernel would: nothing of its own runs any more."""
        self._popen.kill()
        self._popen.wait()
        self._close()

    def finish(self) -> None:
        """Let it end by itself."""
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
        # A forked child may keep the pipe open, so the reader is not waited for as long as it takes.
        self._reader.join(1.0)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None and not (pipe is self._popen.stdout and self._reader.is_alive()):
                pipe.close()

"""Ends a command whose ``distlock run`` was killed: with SIGKILL, nobody else can.

A small process of its own. A pipe tells it of our end, so it works on every Unix, and reaches the command's
children, too, which a parent-death signal of Linux does not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distlock.cli.exits import NOT_RUN, Failed

#: Reads to the end of the pipe: whom to signal, and perhaps that it is over.
_PROGRAM = """
import os, sys
said = b""
while part := os.read(0, 64):
    said += part
target, *over = said.split() or [b"", b""]
if not over:
    os.kill(int(target), int(sys.argv[1]))
"""


@contextmanager
def watchdog(number: signal.Signals | None) -> Iterator[Callable[[int], None]]:
    """Send *number* to the target that the block names if this process ends in it; None: nothing.

    The target is a process, or a group of them if it is negative, as for kill(2). Raises `Failed`.
    """
    if number is None:
        yield lambda target: None
        return
    # Not in our group, which may be signalled as a whole, and with nothing of ours left open.
    try:
        process = subprocess.Popen(  # noqa: S603 - the program above
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(int(number))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(
            f"The process that watches over the command can't be run: {error.strerror}. The command has not "
            "run. Free what is short, or do without by --on-lost none.",
            NOT_RUN,
        ) from error
    pipe = process.stdin
    assert pipe is not None

    def say(line: str) -> None:
        # If somebody has killed the watchdog, the command runs without it.
        with suppress(BrokenPipeError):
            pipe.write(line.encode())

    try:
        yield lambda target: say(f"{target}\n")
    finally:
        say("over\n")
        pipe.close()
        process.kill()
        process.wait()

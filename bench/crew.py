"""Crews: processes, in Python or Java, that use one kind of lock.

A crew lives on while other crews are measured, so that rounds can take turns.
"""

from __future__ import annotations

import functools
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import threading
import time
import traceback
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

from bench.contest import Contest, Part
from bench.locks import LOCKS, PATIENCE, Lock
from demo_shop.configuration import VAR
from loadtest.servers.processes import StackError

TaskResult = TypeVar("TaskResult")
#: A process that does not end by itself within this many seconds is killed.
GRACE = 5.0

SOURCES = Path(__file__).parent / "java"
BUILT = VAR / "java"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: Locks of Redisson, and the lock of Curator, as the tables name them.
JAVA_KINDS = ("RLock", "RFairLock", "Curator")


class BenchError(Exception):
    """A round could not be measured. The message says what went wrong with which lock."""


@functools.cache
def process_context() -> ForkServerContext:
    """Return a context that starts processes quickly, without the open files of this process."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["bench.contest", "distlock", "redis", "kazoo.client"])
    return made


def end_with_parent() -> None:
    """End this process with its parent, because a run that is killed can't end its crews."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def serve_orders(orders: Connection, kind: str, url: str) -> None:
    """Carry out tasks in a process of a crew, and send back their results."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    # The rows of chaos cut connections on purpose, so warnings would be noise.
    logging.getLogger("distlock").setLevel(logging.ERROR)
    try:
        lock = LOCKS[kind](url)
        with lock("warm"):
            pass
        orders.send(None)
        while (task := orders.recv()) is not None:
            orders.send(task(lock))
    except ModuleNotFoundError as error:
        orders.send(BenchError(f"{kind}: {error}. Run: pip install --group bench"))
    except EOFError:
        return  # The run was killed.
    except BaseException:
        orders.send(BenchError(f"{kind}: {traceback.format_exc()}"))


class Crew:
    """*size* processes, each with its own client for locks of *kind*."""

    #: Seconds of a first contest that does not count, which opens connections and loads scripts.
    warm_up = 0.1

    def __init__(self, size: int, kind: str, url: str) -> None:
        self.kind = kind
        self._members: list[tuple[Any, Connection]] = []
        for _ in range(size):
            here, there = process_context().Pipe()
            process = process_context().Process(target=serve_orders, args=(there, kind, url), daemon=True)
            process.start()
            there.close()
            self._members.append((process, here))
        for _, orders in self._members:
            self._answer(orders)

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._members]

    def do(self, tasks: Sequence[Callable[[Lock], TaskResult]]) -> list[TaskResult]:
        """Let each process carry out its task, all at the same time. Raises `BenchError`."""
        busy = [orders for (_, orders), _ in zip(self._members, tasks, strict=False)]
        for orders, task in zip(busy, tasks, strict=True):
            orders.send(task)
        return [self._answer(orders) for orders in busy]

    def _answer(self, orders: Connection) -> Any:
        if not orders.poll(4 * PATIENCE):
            raise BenchError(f"{self.kind}: a process says nothing any more.")
        answer = orders.recv()
        if isinstance(answer, BenchError):
            raise answer
        return answer

    def end(self) -> None:
        """End all processes. Kill those that are still busy after `GRACE` seconds."""
        for _, orders in self._members:
            # A process that failed has ended already.
            with suppress(OSError):
                orders.send(None)
        deadline = time.monotonic() + GRACE
        for process, _ in self._members:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()


def java_versions() -> str:
    """Return the names and versions of the libraries that Maven fetches."""
    dependencies = ElementTree.parse(SOURCES / "pom.xml").findall(".//{*}dependency")
    return ", ".join(f"{one.findtext('{*}artifactId')} {one.findtext('{*}version')}" for one in dependencies)


@functools.cache
def class_path() -> str:
    """Fetch and compile all classes, and return their class path."""
    for program in ("mvn", "javac"):
        if not shutil.which(program):
            raise StackError(f"{program} is not installed. Run: scripts/bench --java")
    BUILT.mkdir(parents=True, exist_ok=True)
    run_build(
        ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), COPY, f"-DoutputDirectory={BUILT / 'jars'}"]
    )
    jars = f"{BUILT / 'jars'}/*"
    run_build(["javac", "-cp", jars, "-d", str(BUILT / "classes"), *map(str, SOURCES.glob("*.java"))])
    return f"{BUILT / 'classes'}:{jars}"


def run_build(command: Sequence[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise StackError(f"{command[0]} failed. It said: {(ran.stdout + ran.stderr).strip()}")


class JavaCrew(Crew):
    """A `Crew` whose processes run Java. The first such crew compiles the classes."""

    #: Seconds until the virtual machine has compiled the code that runs often.
    warm_up = 5.0

    def __init__(self, size: int, kind: str, url: str) -> None:
        self.kind = kind
        command = ["java", "-Xmx256m", "-cp", class_path(), "Contest", kind, url.removesuffix("/0")]
        self._java = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            for _ in range(size)
        ]
        for member in self._java:
            self._line(member)

    @property
    def size(self) -> int:
        return len(self._java)

    def do(self, tasks: Sequence[Callable[[Lock], TaskResult]]) -> list[TaskResult]:
        """Let each process carry out its contest, all at the same time. Raises `BenchError`."""
        for member, task in zip(self._java, tasks, strict=False):
            if not isinstance(task, Contest) or task.plan.think or task.plan.burners or task.plan.few:
                raise BenchError(f"{self.kind}: Java has no such contest.")
            plan = task.plan
            words = [task.oracle, task.number, plan.threads, plan.seconds, plan.times or 0, plan.body]
            words.append(task.begin)
            assert member.stdin
            member.stdin.write("\t".join(map(str, words)) + "\n")
            member.stdin.flush()
        return [self._part(member) for member, _ in zip(self._java, tasks, strict=False)]

    def _part(self, member: subprocess.Popen[str]) -> Any:
        told: dict[str, Any] = json.loads(self._line(member))
        return Part(
            waits=array("d", (wait / 1e9 for wait in told["waits"])),
            entered=told["entered"],
            violations=told["violations"],
            changes=told["changes"],
            process_changes=told["process_changes"],
            hand_overs=array("d", told["hand_overs"]),
            ended=told["ended"] / 1e9,
            cpu=told["cpu"] / 1e9,
        )

    def _line(self, member: subprocess.Popen[str]) -> str:
        assert member.stdout
        if not (line := member.stdout.readline()):
            raise BenchError(f"{self.kind}: a process in Java ended with {member.wait(PATIENCE)}.")
        return line

    def end(self) -> None:
        for member in self._java:
            assert member.stdin
            assert member.stdout
            with suppress(OSError):
                member.stdin.close()
            try:
                member.wait(GRACE)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
            member.stdout.close()

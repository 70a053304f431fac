"""A `Crew` whose processes are in Java. They are built when they are asked for first."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.contest import Contest, Part
from bench.crew import GRACE, BenchError, Crew, Result
from bench.locks import PATIENCE, Lock
from demo_shop.configuration import VAR
from loadtest.servers.processes import StackError

SOURCES = Path(__file__).parent / "java"
BUILT = VAR / "java"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: By the names that the tables have: locks of Redisson, and Curator's.
KINDS = ("RLock", "RFairLock", "Curator")


def versions() -> str:
    """What is fetched."""
    dependencies = ElementTree.parse(SOURCES / "pom.xml").findall(".//{*}dependency")
    return ", ".join(f"{one.findtext('{*}artifactId')} {one.findtext('{*}version')}" for one in dependencies)


@functools.cache
def class_path() -> str:
    """Where the classes are, theirs and ours."""
    for program in ("mvn", "javac"):
        if not shutil.which(program):
            raise StackError(f"{program} is not installed. Run: scripts/bench --java")
    BUILT.mkdir(parents=True, exist_ok=True)
    run(["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), COPY, f"-DoutputDirectory={BUILT / 'jars'}"])
    jars = f"{BUILT / 'jars'}/*"
    run(["javac", "-cp", jars, "-d", str(BUILT / "classes"), *map(str, SOURCES.glob("*.java"))])
    return f"{BUILT / 'classes'}:{jars}"


def run(command: Sequence[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise StackError(f"{command[0]} failed. It said: {(ran.stdout + ran.stderr).strip()}")


class JavaCrew(Crew):
    #: Seconds until what runs often is compiled.
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

    def do(self, tasks: Sequence[Callable[[Lock], Result]]) -> list[Result]:
        """Have each do its contest, all at the same time. Raises `BenchError`."""
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

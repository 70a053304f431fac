"""Curator in a Java process of its own, with the class that docs/from/java.md has for Java programs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.backends.zookeeper.contender import LONG
from tests.docs.blocks import blocks
from tests.zookeeper_server import JAVA, ZooKeeperServer

#: Debian's libcurator-recipes-java brings them.
JARS = [
    Path("/usr/share/java", f"{name}.jar")
    for name in (
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "zookeeper",
        "guava",
        "slf4j-api",
        "slf4j-nop",
    )
]
SOURCE = Path(__file__).with_name("Curator.java")
PAGE = "from/java.md"


class Curator:
    """A Java process that locks as the lines of its input say. It begins with the mutex at *path*."""

    def __init__(self, classes: Path, server: ZooKeeperServer, path: str, session: float = LONG) -> None:
        words = ["-cp", class_path(classes), SOURCE.stem, f"127.0.0.1:{server.port}", path]
        self._java = subprocess.Popen(
            [*JAVA, *words, str(round(session * 1000))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.answer() == "ready"

    def use(self, recipe: str) -> None:
        """Change the recipe that `acquire` and `release` are about."""
        assert self.do(f"recipe {recipe}") == "ready"

    def lock(self, path: str, prefix: str, name: str) -> None:
        """Change to the lock that the page's class makes of these words."""
        assert self.do(f"lock {path} {prefix} {name}") == "ready"

    def encode(self, key: str) -> str:
        """Return what the page's class makes of a key."""
        return self.do(f"encode {key}")

    def acquire(self, milliseconds: int) -> bool:
        return self.do(f"acquire {milliseconds}") == "yes"

    def release(self) -> None:
        assert self.do("release") == "released"

    def do(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def tell(self, line: str) -> None:
        assert self._java.stdin
        print(line, file=self._java.stdin, flush=True)

    def answer(self) -> str:
        assert self._java.stdout
        return self._java.stdout.readline().strip()

    def kill(self) -> None:
        """Kill the process by SIGKILL: it can end neither its lock nor its session."""
        self._java.kill()
        self._java.communicate()


def compiled(folder: Path) -> Path:
    """Compile the page's blocks and the tests' program into *folder*. Return it."""
    there = which("javac") and all(jar.exists() for jar in JARS)
    assert there, "Curator is not installed: scripts/test installs it"
    sources = [SOURCE]
    for block in blocks():
        if (block.page, block.language) == (PAGE, "java"):
            found = re.search(r"^(?:final )?class (\w+)", block.text, re.MULTILINE)
            assert found, block
            sources.append(folder / f"{found[1]}.java")
            sources[-1].write_text(block.text, "utf-8")
    words = ["-encoding", "utf-8", "-d", folder, "-cp", class_path(folder), *sources]
    subprocess.run(["javac", *map(str, words)], check=True)
    return folder


def class_path(folder: Path) -> str:
    return ":".join(map(str, (folder, *JARS)))


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("java"))

"""The tutorial, typed step by step: what oversells there oversells, and what is exact is exact."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.ports import free_port
from tests.redis_server import RedisServer, eventually, redis_server
from tests.web.quickstart import code_blocks, listens, own_environment, snippets

__all__ = ["redis_server"]

PAGE = "tutorial/index.md"
SHOP, BUY, IN_PROCESS, LOCKED, ON_REDIS, FENCED = snippets(PAGE)
VIEW = SHOP[SHOP.index("@app.post") :]


def edited(shop: str, change: str) -> str:
    """*shop* as a reader leaves it who is told *change*: its view replaced, its new lines above that."""
    setting, _, view = change.partition("@app.post")
    old = shop.index("@app.post")
    return f"{shop[:old]}{setting}\n{'@app.post' + view if view else shop[old:]}"


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "buy.py").write_text(BUY)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.path,
            env=own_environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def served(self, shop: str, servers: int) -> Iterator[list[str]]:
        """As ``flask --app shop run`` does, so often. Gives the ports."""
        (self.path / "shop.py").write_text(shop)
        ports = [free_port() for _ in range(servers)]
        with contextlib.ExitStack() as stack:
            for port in ports:
                out = stack.enter_context((self.path / f"{port}.log").open("wb"))
                command = [sys.executable, "-m", "flask", "--app", "shop", "run", "--port", str(port)]
                server = subprocess.Popen(
                    command, cwd=self.path, env=own_environment(), stdout=out, stderr=out
                )
                stack.callback(server.wait, 30)
                stack.callback(server.kill)
            for port in ports:
                eventually(lambda port=port: listens(port), f"flask listens on {port}", 60)  # type: ignore[misc]
            yield [str(port) for port in ports]

    def buy(self, shop: str, servers: int = 2) -> tuple[int, int, dict[int, int]]:
        """What buy.py says: how many were sold, how many are left, and the other answers."""
        with self.served(shop, servers) as ports:
            said = self.run("buy.py", *ports)
        print(said)
        found = re.fullmatch(r"sold (\d+) of 100, (-?\d+) left; other answers: (.*)\n", said)
        assert found, said
        return int(found[1]), int(found[2]), eval(found[3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("tutorial"))


def test_without_a_lock_it_oversells(folder: Folder) -> None:
    sold, left, _ = folder.buy(SHOP, servers=1)
    assert sold > 100 - left


def test_a_lock_in_the_process_is_enough_for_one_server_and_not_for_two(folder: Folder) -> None:
    assert folder.buy(edited(SHOP, IN_PROCESS), servers=1) == (100, 0, {409: 100})
    sold, left, _ = folder.buy(edited(SHOP, IN_PROCESS))
    assert sold > 100 - left


def test_one_lock_for_all_servers_is_exact(folder: Folder) -> None:
    assert folder.buy(edited(SHOP, LOCKED)) == (100, 0, {409: 100})


@pytest.fixture
def forgetting(redis_server: RedisServer) -> Iterator[RedisServer]:
    """It loses all that it has fifty times a second, as the loop in the tutorial's terminal makes it."""
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.02):
            redis_server.tell("FLUSHALL")

    thread = threading.Thread(target=forget)
    thread.start()
    yield redis_server
    over.set()
    thread.join()


def test_a_lock_service_that_forgets_needs_the_fence(folder: Folder, forgetting: RedisServer) -> None:
    shop = edited(edited(SHOP, LOCKED), ON_REDIS.replace("redis://localhost:6390/0", forgetting.url))
    sold, left, _ = folder.buy(shop)
    assert sold > 100 - left

    fenced = edited(shop, FENCED)
    (folder.path / "shop.py").write_text(fenced)
    (create,) = (block for block in code_blocks((Path("docs") / PAGE).read_text(), "sh") if "create" in block)
    folder.run("-m", *create.split())
    sold, left, others = folder.buy(fenced)
    assert sold == 100 - left
    assert others.keys() <= {409, 423, 503}

"""A reader's folder, in which the steps of a tutorial are typed, served and bought from."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from loadtest.servers.processes import free_port
from tests.redis_server import eventually
from tests.web.quickstart import code_blocks, listens, own_environment, snippets


class Sale(NamedTuple):
    """What the buyers print."""

    sold: int
    left: int
    others: dict[int, int]

    @property
    def oversold(self) -> bool:
        return self.sold > 100 - self.left

    @property
    def exact(self) -> bool:
        return self == (100, 0, {409: 100})

    @property
    def fenced(self) -> bool:
        """What was not sold was refused in a way that says so."""
        return self.sold == 100 - self.left and self.others.keys() <= {409, 423, 503}


def sale(said: str) -> Sale:
    found = re.fullmatch(r"sold (\d+) of 100, (-?\d+) left; other answers: (.*)\n", said)
    assert found, said
    return Sale(int(found[1]), int(found[2]), ast.literal_eval(found[3]))


class Shop(Protocol):
    """A tutorial, and the folder that it is typed in."""

    page: str
    folder: Path
    #: What the reader types behind ``python``; the port follows.
    serve: list[str]
    buyers: list[str]

    def type_step(self, number: int, redis_url: str) -> None:
        """Write the files as they stand after the step *number*, which begins with 1."""
        ...


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def served(shop: Shop, servers: int = 2) -> Iterator[list[str]]:
    """Gives the ports."""
    ports = [str(free_port()) for _ in range(servers)]
    with contextlib.ExitStack() as stack:
        for port in ports:
            out = stack.enter_context((shop.folder / f"{port}.log").open("wb"))
            command = [sys.executable, *shop.serve, port]
            server = subprocess.Popen(command, cwd=shop.folder, env=own_environment(), stdout=out, stderr=out)
            stack.callback(server.wait, 30)
            stack.callback(server.kill)
        for port in ports:
            eventually(lambda port=port: listens(int(port)), f"a server listens on {port}", 60)  # type: ignore[misc]
        yield ports


def buy(shop: Shop, ports: list[str]) -> Sale:
    said = run(shop.folder, *shop.buyers, *ports)
    print(said)
    return sale(said)


class FlaskShop:
    page = "tutorial/flask.md"
    serve = ["-m", "flask", "--app", "shop", "run", "--port"]
    buyers = ["buy.py"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shop, buyers, self._process, self._locked, self._redis, self._fenced = snippets(self.page)
        (folder / "buy.py").write_text(buyers)

    def type_step(self, number: int, redis_url: str) -> None:
        text = self._shop
        if number == 2:
            text = edited(text, self._process)
        if number >= 4:
            text = edited(text, self._locked)
        if number >= 5:
            text = edited(text, self._redis.replace("redis://localhost:6390/0", redis_url))
        if number >= 6:
            text = edited(text, self._fenced)
        (self.folder / "shop.py").write_text(text)
        if number == 6:
            (make_table,) = (block for block in shell(self.page) if "create" in block)
            run(self.folder, "-m", *make_table.split())


def edited(shop: str, change: str) -> str:
    """*shop* as a reader leaves it who is told *change*: its view replaced, its new lines above that."""
    setting, _, view = change.partition("@app.post")
    old = shop.index("@app.post")
    return f"{shop[:old]}{setting}\n{'@app.post' + view if view else shop[old:]}"


class DjangoShop:
    page = "tutorial/django.md"
    #: Without the second process that looks for changed files.
    serve = ["manage.py", "runserver", "--noreload"]
    buyers = ["manage.py", "buy"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._typed = 0
        self._blocks = snippets(self.page)
        start, migrate, *_ = shell(self.page)
        for line in start.splitlines()[2:]:
            words = line.removeprefix("python ").replace("django-admin", "-m django").split()
            run(folder, *words)
        (folder / "shop/management/commands").mkdir(parents=True)
        for block in self._blocks[:5]:
            self._write(block)
        for line in migrate.splitlines():
            run(folder, *line.split()[1:])

    def type_step(self, number: int, redis_url: str) -> None:
        # A step adds to those before it, which a test that runs alone has not typed.
        for step in range(self._typed + 1, number + 1):
            for block in {2: [5], 4: [6, 7], 5: [8], 6: [9]}.get(step, []):
                self._write(self._blocks[block].replace("redis://localhost:6390/0", redis_url))
        self._typed = number
        if number == 6:
            run(self.folder, *shell(self.page)[-1].split()[1:])

    def _write(self, block: str) -> None:
        name = block.splitlines()[0].removeprefix("# ")
        # Django has made these; the others are whole.
        with (self.folder / name).open("a" if name.startswith("mysite/") else "w") as file:
            file.write(block)


def shell(page: str) -> list[str]:
    return code_blocks((Path("docs") / page).read_text("utf-8"), "sh")


def shown(page: str) -> list[Sale]:
    """What the page says that the buyers print, step by step."""
    return [sale(text) for text in code_blocks((Path("docs") / page).read_text("utf-8"), "text")]

"""What ``docs/reference/commands.md`` shows is what the commands write: numbers and hosts may differ."""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import distlock
from distlock.cli import output as exits
from distlock.cli.main import COMMANDS
from distlock.cli.main import distlock as command
from distlock.cli.output import seconds
from tests.cli.conftest import PATIENCE, Run, until
from tests.redis_server import RedisServer

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGE = (REFERENCE / "commands.md").read_text("utf-8")
#: It has the members of the commands' JSON.
STORED = (REFERENCE / "stored.md").read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """What is typed, and what is written then."""
    return re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", page)


#: Where there are readers, a semaphore and a latch; and where there is one stuck lock.
FAMILY, STUCK = (
    [one for one in blocks(PAGE) if ("gateway" in one[1] or "import_7" in one[0]) is of]
    for of in (True, False)
)

#: As the page has it: line 12 of a file of the site's.
VIEWS = "\n" * 11 + "def reduce_stock(locks, inside):\n with locks.lock('product_1'):\n  inside()\n"
#: The same of what has readers, a semaphore and a latch.
SITE = {
    "publish.py": "\n" * 7 + "def publish(locks): return locks.latch('import_7')",
    "views.py": "\n" * 39
    + "def report(locks): return locks.read_lock('catalogue')"
    + "\n" * 37
    + "def pay(locks, permits): return locks.semaphore('gateway', limit=10, permits=permits)",
}


def alike(text: str) -> str:
    """*text* without what differs each time."""
    text = text.replace(socket.gethostname(), "HOST")
    text = re.sub(r"\bweb\d\b", "HOST", text)
    text = re.sub(r"\d+(?:\.\d+)? (?:s|min)\b", "LASTED", text)
    # How many of how many stays.
    text = re.sub(r"\d+ of \d+|(\d+(?:[.:]\d+)*)", lambda found: "N" if found[1] else found[0], text)
    return re.sub(r" +", " ", text)


@pytest.fixture
def stuck(own_server: RedisServer) -> Iterator[None]:
    """Two processes: one holds the lock for long, two callers of the other wait."""
    clients = [distlock.connect(own_server.url, timeout=PATIENCE, max_hold=600) for _ in range(2)]
    holding, waiting = clients
    views: dict[str, Any] = {}
    exec(compile(VIEWS, "views.py", "exec"), views)
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        end.wait(PATIENCE)

    def carry_out(locks: distlock.Locks, inside: Any) -> None:
        try:
            views["reduce_stock"](locks, inside)
        except distlock.LockError:
            pass  # It was broken.

    threads = [threading.Thread(target=carry_out, args=(holding, hold))]
    threads[0].start()
    assert held.wait(PATIENCE)
    threads += [threading.Thread(target=carry_out, args=(waiting, lambda: None)) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    # Each process speaks for itself.
    until(lambda: sorted(one.party.waiting for one in holding.list()) == [0, 2])
    yield
    end.set()
    for thread in threads:
        thread.join(PATIENCE)
    for client in clients:
        client.close()


@pytest.mark.usefixtures("stuck")
def test_the_output_on_the_page_is_what_is_written(
    own_server: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [line.split()[1] for line, _ in STUCK] == ["list", "show", "ask", "break", "doctor", "run"]
    for line, output in STUCK:
        environment = {"DISTLOCK_URL": own_server.url, "DISTLOCK_PREFIX": ""}
        result = CliRunner().invoke(command, shlex.split(line)[1:], env=environment, prog_name="distlock")
        assert result.exit_code == 0
        # What runs under a lock writes by itself.
        written = result.stdout + (capfd.readouterr().out if " run " in line else "")
        assert alike(written) == alike(output), line


@pytest.fixture
def family(redis_server: RedisServer, prefix: str) -> Iterator[None]:
    """Two processes: one reads and has permits, the other has a permit and waits for a latch."""
    first, second = (
        distlock.connect(redis_server.url, prefix=prefix, timeout=PATIENCE, max_hold=600) for _ in range(2)
    )
    code: dict[str, Any] = {}
    for file, lines in SITE.items():
        exec(compile(lines, file, "exec"), code)
    assert first.latch("import_7", 2).make()
    first.latch("import_7").count_down()
    publishing = threading.Thread(target=code["publish"](second).wait, args=(PATIENCE,))
    with ExitStack() as held:
        held.callback(second.close)
        held.callback(first.close)
        publishing.start()
        held.callback(publishing.join, PATIENCE)
        held.callback(first.latch("import_7").count_down)
        for _ in range(4):
            held.enter_context(code["report"](first))
        held.enter_context(code["pay"](first, 3))
        held.enter_context(code["pay"](second, 1))
        until(lambda: len(list(first.list())) == 4)
        yield


@pytest.mark.usefixtures("family")
def test_readers_a_semaphore_and_a_latch_are_told_as_on_the_page(run: Run) -> None:
    assert [shlex.split(line)[1:] for line, _ in FAMILY] == [
        ["list"],
        ["show", "--kind", "semaphore", "gateway"],
        ["show", "--kind", "latch", "import_7"],
    ]
    for line, output in FAMILY:
        # The lock service says in which order those stand that have permits, and its processes.
        told = list if "latch" in line else sorted
        written = run(*shlex.split(line)[1:]).output
        assert told(alike(written).splitlines()) == told(alike(output).splitlines()), line
    assert run("show", "catalogue").output.splitlines()[1] == "4 callers read it."
    objects = [json.loads(line) for line in run("list", "--json").output.splitlines()]
    assert {(one["kind"], one["mode"], one["holding"], one["left"]) for one in objects} == {
        ("lock", "read", 4, None),
        ("semaphore", "permit", 3, None),
        ("semaphore", "permit", 1, None),
        ("latch", "exclusive", 0, 1),
    }
    assert len(objects) == 4


def test_what_lasts_on_the_page_is_written_as_a_command_would() -> None:
    told = [
        int(number) for _, output in blocks(PAGE) for number in re.findall(r"(?<![\d.])(\d+) s\b", output)
    ]
    assert len(told) > 10
    assert [seconds(number) for number in told] == [f"{number} s" for number in told]


@pytest.mark.usefixtures("stuck")
def test_the_fields_of_json_are_those_of_the_page(own_server: RedisServer) -> None:
    section = STORED.partition("## JSON of the commands")[2]
    tables = re.findall(r"^\| `(\w+)` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    told = {
        title: [name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
        for title, rows in tables
    }
    party = set(told["list"][told["list"].index("process") :])
    shows = set(told["show"])
    assert "`process` to `holding`" in section
    assert told["list"][-1] == "holding"

    def written(*words: str) -> list[Any]:
        environment = {"DISTLOCK_URL": own_server.url, "DISTLOCK_PREFIX": ""}
        result = CliRunner().invoke(command, [*words, "--json"], env=environment)
        return [json.loads(line) for line in result.stdout.splitlines() if line]

    for words in (("list",), ("watch", "--count", "1")):
        assert all(one.keys() == set(told["list"]) for one in written(*words))
    [shown] = written("show", "product_1")
    assert shown.keys() == shows
    assert all(one.keys() == party for one in (shown["holder"], *shown["queue"]))
    [findings] = written("doctor")
    assert all(one.keys() == set(told["doctor"]) for one in findings)
    assert "`ask` and `break` write `asked` or `broken`" in section
    [asked] = written("ask", "product_1")
    assert asked.keys() == shows | {"asked"}
    [broken] = written("break", "product_1", "--yes")
    assert broken.keys() == shows | {"broken"}


@pytest.mark.usefixtures("stuck")
def test_a_stuck_lock_is_freed_by_the_line_that_the_page_names(own_server: RedisServer) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/stuck.md").read_text("utf-8")
    [(line, output)] = blocks(page)
    words = shlex.split(line.removeprefix("python manage.py "))[1:]
    environment = {"DISTLOCK_URL": own_server.url, "DISTLOCK_PREFIX": ""}
    result = CliRunner().invoke(command, words, env=environment, prog_name="distlock", input="y\n")
    assert alike(result.output) == alike(output)


def test_each_command_and_option_of_run_is_on_the_page() -> None:
    assert {str(one.name) for one in COMMANDS} <= set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))
    (run,) = (one for one in COMMANDS if one.name == "run")
    for option in (word for one in run.params for word in one.opts if word.startswith("-")):
        assert f"`{option}" in PAGE, option


def test_the_exit_codes_are_those_of_the_page() -> None:
    told = {
        int(code)
        for row in re.findall(r"^\| (\d[\d, ]*)(?: and more)? \|", PAGE, re.MULTILINE)
        for code in row.split(",")
    }
    public = {name: value for name, value in vars(exits).items() if name.isupper() and name[0] != "_"}
    codes = {value for value in public.values() if isinstance(value, int)}
    assert told == {0} | codes

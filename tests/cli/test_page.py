"""What ``docs/reference/commands.md`` shows is what the commands write: numbers and hosts may differ."""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import distlock
from distlock.cli import exits
from distlock.cli.main import COMMANDS
from distlock.cli.main import distlock as command
from tests.cli.conftest import PATIENCE, until
from tests.redis_server import RedisServer

PAGE = (Path(__file__).parents[2] / "docs/reference/commands.md").read_text("utf-8")


def blocks(page: str) -> dict[str, str]:
    """What is typed, and what is written then."""
    return dict(re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", page))


SHOWN = blocks(PAGE)

#: As the page has it: line 12 of a file of the site's.
VIEWS = "\n" * 11 + "def reduce_stock(locks, inside):\n with locks.lock('product_1'):\n  inside()\n"


def alike(text: str) -> str:
    """*text* without what differs each time."""
    text = text.replace(socket.gethostname(), "HOST")
    text = re.sub(r"\bweb\d\b", "HOST", text)
    text = re.sub(r"\d+(?:[.:]\d+)*(?: min)?", "N", text)
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
    assert [line.split()[1] for line in SHOWN] == ["list", "show", "ask", "break", "doctor", "run"]
    for line, output in SHOWN.items():
        environment = {"DISTLOCK_URL": own_server.url, "DISTLOCK_PREFIX": ""}
        result = CliRunner().invoke(command, shlex.split(line)[1:], env=environment, prog_name="distlock")
        assert result.exit_code == 0
        # What runs under a lock writes by itself.
        written = result.stdout + (capfd.readouterr().out if " run " in line else "")
        assert alike(written) == alike(output), line


@pytest.mark.usefixtures("stuck")
def test_the_fields_of_json_are_those_of_the_page(own_server: RedisServer) -> None:
    section = PAGE.partition("## JSON")[2].partition("## Exit codes")[0]
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", section, re.MULTILINE)
    told = {words.replace("`", ""): set(re.findall(r"`(\w+)`", fields)) for words, fields in rows}
    party, levels = told["a process"], {"ok", "warning", "error"}

    def written(*words: str) -> list[Any]:
        environment = {"DISTLOCK_URL": own_server.url, "DISTLOCK_PREFIX": ""}
        result = CliRunner().invoke(command, [*words, "--json"], env=environment)
        return [json.loads(line) for line in result.stdout.splitlines() if line]

    for words in (("list",), ("watch", "--count", "1")):
        fields = {"name", "kind", "held", "mode", "limit", "total", "left"} | party
        assert all(one.keys() == fields for one in written(*words))
    [shown] = written("show", "product_1")
    assert shown.keys() == told["show"]
    assert all(one.keys() == party for one in (shown["holder"], *shown["queue"]))
    [findings] = written("doctor")
    assert all(one.keys() | levels == told["doctor"] for one in findings)
    [asked] = written("ask", "product_1")
    assert asked.keys() == told["show"] | (told["ask"] - {"show"})
    [broken] = written("break", "product_1", "--yes")
    assert broken.keys() == told["show"] | (told["break"] - {"show"})


@pytest.mark.usefixtures("stuck")
def test_a_stuck_lock_is_freed_by_the_line_that_the_page_names(own_server: RedisServer) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/stuck.md").read_text("utf-8")
    [(line, output)] = blocks(page).items()
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
    assert told == {0} | {value for name, value in vars(exits).items() if name.isupper()}

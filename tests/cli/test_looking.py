"""``distlock list``, ``show``, ``watch`` and ``break``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

import distlock
from distlock.errors import BackendUnavailable
from tests.backend_class import backend_class
from tests.cli.conftest import PATIENCE, Run, until
from tests.redis_server import RedisServer
from tests.zookeeper_server import ZooKeeperServer


def test_nothing_is_held(run: Run, client: distlock.Locks) -> None:
    assert run("show", "product_1").output == "product_1 is free.\n"
    listed = run("list")
    assert (listed.exit_code, listed.output) == (
        0,
        "No lock has been held or waited for longer than about three seconds.\n",
    )
    assert run("list", "--json").output == ""
    broken = run("break", "product_1", "--yes")
    assert (broken.exit_code, broken.output) == (1, "product_1 is free. Nothing was broken.\n")


@pytest.mark.parametrize(
    "words", [["show", "product_1"], ["ask", "product_1"], ["break", "product_1", "--yes"], ["list"]]
)
def test_without_the_prefix_nothing_is_just_called_free(
    run: Run, client: distlock.Locks, words: list[str]
) -> None:
    with client.lock("product_1"):
        said = run(*words, "--prefix", "").stderr
    assert "No prefix was given" in said


@pytest.mark.parametrize(
    "words", [["show", "product_1"], ["ask", "product_1"], ["break", "product_1", "--yes"], ["list"]]
)
def test_a_service_that_goes_away_before_the_hint_is_an_error_in_one_line(
    run: Run, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def went_away(_: object) -> None:
        raise BackendUnavailable("It went away.")

    monkeypatch.setattr(backend_class(f"file://{tmp_path}"), "unmade", went_away)
    said = run(*words, "--url", f"file://{tmp_path}")
    assert (said.exit_code, said.stderr.splitlines()[-1]) == (69, "Error: It went away.")


@pytest.mark.parametrize("option", ["--url", "--prefix", "--alias", "--json"])
def test_an_option_before_the_command_is_told_where_it_belongs(run: Run, option: str) -> None:
    told = run(option, "shop", "list")
    assert told.exit_code == 2
    assert f"{option} stands after the command: distlock list {option} …" in told.stderr
    assert "No such option" in run("--nonsense", "list").stderr


def test_a_lock_that_is_stuck_is_seen_and_freed(
    run: Run, client: distlock.Locks, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    got = list[distlock.Fence]()
    waiting = distlock.connect(environment["DISTLOCK_URL"], prefix=client.prefix)

    def wait() -> None:
        with waiting.lock("product_1", timeout=PATIENCE) as grant:
            got.append(grant.fence)

    stuck = client.lock("product_1").acquire()
    assert stuck is not None
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: len(run("list").output.splitlines()) == 3)
    titles, held, waits = (line.split() for line in run("list", "product_").output.splitlines())
    assert titles == ["NAME", "STATE", "FOR", "CALLERS", "WHERE", "HOST", "PID"]
    assert (held[:2], held[-1]) == (["product_1", "held"], str(os.getpid()))
    assert (waits[:2], waits[4]) == (["product_1", "waits"], "1")
    assert run("list", "cart_").output.startswith("No lock")
    assert [json.loads(line)["held"] for line in run("list", "--json").output.splitlines()] == [True, False]
    assert run("watch", "--count", "1").output.splitlines()[1].split()[:2] == ["product_1", "held"]

    fence = f"{stuck.fence.epoch}:{stuck.fence.number}"
    said = run("show", "product_1").output.splitlines()
    assert said[0].startswith(
        "product_1 is held by test_a_lock_that_is_stuck_is_seen_and_freed (test_looking.py:"
    )
    assert f" in process {os.getpid()} on " in said[0]
    assert said[1].startswith(f"Its fence is {fence}. Its lease ends in ")
    assert said[2] == "1 process waits:"
    assert "1. test_a_lock_that_is_stuck" in said[3]
    assert said[4] == f"To break it: distlock break --fence {fence} product_1"
    shown = json.loads(run("show", "product_1", "--json").output)
    assert (shown["fence"], shown["holder"]["pid"], shown["waiting"]) == (fence, os.getpid(), 1)

    # Another hold than the one that was seen is left alone, and so is this one until somebody says yes.
    other = run("break", "product_1", "--yes", "--fence", "1:1")
    assert (other.exit_code, "Nothing was broken." in other.output) == (1, True)
    asked = run("break", "product_1", input="n\n")
    assert (asked.exit_code, "Break it? [y/N]: n" in asked.output) == (1, True)
    stuck.check()

    broken = run("break", "product_1", "--fence", fence, input="y\n")
    assert broken.exit_code == 0
    assert broken.output.endswith(f"product_1 was broken: its fence was {fence}.\n")
    thread.join(PATIENCE)
    assert got[0] > stuck.fence
    until(lambda: stuck.lost)
    assert "was broken by " in caplog.text
    waiting.close()


def test_the_holder_is_asked_for_its_lock(
    run: Run, client: distlock.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    free = run("ask", "product_1")
    assert (free.exit_code, free.output) == (1, "product_1 is free. Nobody was asked.\n")
    with client.lock("product_1", ttl=1.5) as grant:
        asked = run("ask", "product_1")
        first, *rest = asked.output.splitlines()
        assert asked.exit_code == 0
        assert first.startswith("product_1 is held by ")
        assert rest == [
            "Its holder was asked to give it back. It is told within some seconds, and may go on.",
            "To see whether it did: distlock show product_1",
        ]
        until(lambda: grant.release_requested)
        grant.check()
        assert json.loads(run("ask", "product_1", "--json").output)["asked"] is True
    assert "was asked by " in caplog.text


@pytest.mark.attack("A16")
def test_a_name_is_no_command_to_the_terminal(run: Run) -> None:
    assert run("show", "a\u202eb").output == "a\\u202eb is free.\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show"], 2, "Missing argument 'NAME'"),
        (["show", ""], 2, "name"),
        (["show", "a", "--alias", "other"], 2, "--alias names one of a site's settings"),
        (["break", "a", "--fence", "12"], 2, "'12' is no fence, such as 1:42."),
        (["list", "--url", "memory://a", "--prefix", "x" * 65], 2, "prefix"),
        (["list", "--url", "etcd://localhost"], 2, "etcd"),
        (["list", "--url", "redis://:secret@127.0.0.1:1/0"], 69, "127.0.0.1:1"),
    ],
)
def test_what_can_not_be_is_said_with_its_exit_code(run: Run, words: list[str], code: int, said: str) -> None:
    result = run(*words)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "secret" not in result.output


def test_a_lock_service_has_to_be_named(run: Run, environment: dict[str, str]) -> None:
    del environment["DISTLOCK_URL"]
    result = run("list")
    assert result.exit_code == 2
    assert "Write --url redis://localhost:6379/0, or set DISTLOCK_URL." in result.output


def test_the_line_to_type_is_whole(run: Run, client: distlock.Locks, environment: dict[str, str]) -> None:
    url = environment["DISTLOCK_URL"]
    told = ("--url", url, "--prefix", client.prefix)
    with suppress(distlock.LockLost), client.lock("it's mine"):
        last = run("show", *told, "it's mine").output.splitlines()[-1]
        assert last.startswith(f"To break it: distlock break --url {url} --prefix {client.prefix} --fence 1:")
        # As a shell would read it.
        words = shlex.split(last.removeprefix("To break it: distlock "))
        assert run(*words, "--yes").exit_code == 0


def test_the_line_to_type_has_no_password(run: Run, own_server: RedisServer) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all")
    with closing(distlock.connect(own_server.url)) as locks, locks.lock("a"):
        result = run("show", "--url", own_server.url.replace("//", "//shop:secret@"), "--prefix", "", "a")
    last = result.output.splitlines()[-1]
    assert last.startswith(
        "To break it, put the URL into DISTLOCK_URL, then: distlock break --prefix '' --fence 1:"
    )
    assert "secret" not in result.output


def test_only_a_site_has_a_table_to_prune(run: Run) -> None:
    result = run("prune", "--older-than", "3", "--dry-run")
    assert result.exit_code == 2
    assert "'python manage.py distlock prune' or 'flask distlock prune'" in result.output


@pytest.mark.parametrize(
    "words", [["list"], ["show", "a"], ["break", "a", "--yes"], ["watch", "--count", "1"], ["doctor"]]
)
def test_to_look_makes_no_directory(run: Run, tmp_path: Path, words: list[str]) -> None:
    made_by_an_administrator = tmp_path / "made"
    made_by_an_administrator.mkdir()
    for path, what in (
        (tmp_path / "locks", "is not there"),
        (made_by_an_administrator, "nothing has been locked"),
    ):
        result = run(*words, "--url", path.as_uri(), "--prefix", "shop")
        assert result.exit_code == (1 if "break" in words else 0)
        assert str(path) in result.output
        assert what in result.output
        assert "compare the path" in result.output
    assert [made.name for made in tmp_path.rglob("*")] == ["made"]


def test_a_watch_outlives_an_outage_and_ctrl_c_ends_it(own_server: RedisServer) -> None:
    words = [sys.executable, "-m", "distlock", "watch", "--url", own_server.url, "--interval", "0.1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "bufsize": 1}
    process = subprocess.Popen(words, **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline().startswith("NAME")
        own_server.kill()
        while "can't be used" not in process.stderr.readline():
            pass
        own_server.start()
        # All that was written before the outage is read, too.
        while "NAME" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_readers_are_shown_as_one_and_how_many_more(
    run: Run, client: distlock.Locks, environment: dict[str, str]
) -> None:
    other = distlock.connect(environment["DISTLOCK_URL"], prefix=environment["DISTLOCK_PREFIX"])
    with closing(other), client.read_lock("catalogue"):
        assert "catalogue is read by " in run("show", "catalogue").output
        assert other.read_lock("catalogue").acquire()
        first = run("show", "catalogue").output.splitlines()[0]
        shown = json.loads(run("show", "catalogue", "--json").output)
    assert first.endswith(" and 1 other.")
    assert (shown["mode"], shown["others"]) == ("read", 1)


def test_to_look_makes_no_nodes(run: Run, zookeeper_server: ZooKeeperServer, prefix: str) -> None:
    url = f"{zookeeper_server.url}/{prefix}"
    for words in (["list"], ["show", "a"], ["doctor"]):
        result = run(*words, "--url", url, "--prefix", "shop")
        assert result.exit_code == 0, result.output
        assert f"Nothing has been locked at {url.partition('://')[2]} yet." in result.output
    with closing(distlock.connect(url, prefix="shop")) as locks, locks.lock("product_1"):
        assert run("show", "a", "--url", url, "--prefix", "shop").output == "a is free.\n"


def test_a_terminal_is_told_once_that_a_lock_was_broken(
    client: distlock.Locks, environment: dict[str, str]
) -> None:
    """The log, where none is set up, is written to it as well."""
    ours, theirs = os.openpty()
    with closing(os.fdopen(ours, "rb", buffering=0)) as terminal:
        stuck = client.lock("product_1").acquire()
        assert stuck is not None
        words = [sys.executable, "-m", "distlock", "break", "product_1", "--yes"]
        with closing(os.fdopen(theirs, "wb", buffering=0)) as stderr:
            done = subprocess.run(words, env=os.environ | environment, stdout=subprocess.PIPE, stderr=stderr)
            stderr.write(b"the end")
            assert terminal.read(4096) == b"the end"
    assert done.stdout.startswith(b"product_1 was broken: its fence was ")


def test_output_that_can_not_be_written_is_one_line(environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "distlock", "show", "product_1"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, env=os.environ | environment, stdout=full, stderr=subprocess.PIPE)
    assert done.stderr == b"Error: The output can't be written: No space left on device.\n"
    assert done.returncode == 74

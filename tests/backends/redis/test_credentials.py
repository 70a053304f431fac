"""A login that changes while the process lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import distlock
from distlock import clock
from distlock.errors import BackendUnavailable, ConfigurationError
from tests.backends.redis.contender import MakeContender, ask
from tests.backends.redis.test_deadlines import PATIENCE, SOON, took
from tests.backends.redis.test_failures import whole_story
from tests.redis_server import RedisServer, running
from tests.test_docs import DOCS, snippets

PAGE = DOCS / "reference/backends/redis.md"
SECRET = "s3cr3t-Pa55"
USER = ("ACL", "SETUSER", "shop", "on", "+@all", "~*", "&*")


server = contextmanager(running)


class Rotated(redis.CredentialProvider):
    """What the documentation of redis-py has people write."""

    def __init__(self) -> None:
        self.password, self.asked = "first", 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "shop", self.password


def test_the_example_of_the_page_reads_the_password_anew(own_server: RedisServer, tmp_path: Path) -> None:
    own_server.tell(*USER, ">first")
    (tmp_path / "redis").write_text("first\n")
    (lines,) = (lines for lines in snippets(PAGE) if "credential_provider" in lines)
    lines = lines.replace("localhost:6379", f"127.0.0.1:{own_server.port}")
    lines = lines.replace("/run/secrets", str(tmp_path))
    page: dict[str, Any] = {}
    exec(compile(lines, "docs/reference/backends/redis.md", "exec"), page)
    with page["locks"].lock("product_1"):
        (tmp_path / "redis").write_text("second\n")
        own_server.tell(*USER, "resetpass", ">second")
        own_server.client.client_kill_filter(_type="normal", skipme=True)
        assert page["locks"].lock("product_1").locked()
    page["locks"].close()


@pytest.mark.fault("F19")
def test_a_password_that_was_rotated_is_asked_for_at_the_next_connection(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell(*USER, ">first")
    rotated = Rotated()
    one = contender(f"redis://127.0.0.1:{own_server.port}", credential_provider=rotated)
    one.hold(ask())
    one.hold(ask())
    assert rotated.asked == 1, "an exchange on a connection asks nobody"
    rotated.password = "second"
    own_server.tell(*USER, "resetpass", ">second")
    # As a server does that ends a session.
    own_server.client.client_kill_filter(_type="normal", skipme=True)
    one.hold(ask())
    assert rotated.asked == 2


@pytest.mark.parametrize("given", ["word", ("word",), ("default", "word"), ["default", "word"]])
def test_a_function_gives_a_password_or_user_and_password(
    own_server: RedisServer, contender: MakeContender, given: object
) -> None:
    own_server.client.config_set("requirepass", "word")
    contender(f"redis://127.0.0.1:{own_server.port}", credential_provider=lambda: given).hold(ask())


def test_the_provider_of_a_client_is_taken_over(own_server: RedisServer) -> None:
    own_server.tell(*USER, ">first")
    rotated = Rotated()
    site = redis.Redis(port=own_server.port, credential_provider=rotated)
    locks = distlock.connect(site)
    other = distlock.connect(redis.Redis(port=own_server.port, credential_provider=Rotated()))
    with locks.lock("product_1"):
        assert rotated.asked == 1
    assert locks.namespace.is_same(other.namespace), "a login says nothing of where that is"
    assert " at 0x" not in repr(locks.namespace.identity), "another process has to get the same text"
    locks.close()


def test_a_provider_that_hangs_is_one_call_and_keeps_nobody_longer_than_the_deadline(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    go_on, asked = threading.Event(), []

    def slow() -> tuple[str, str]:
        asked.append(1)
        go_on.wait(PATIENCE * 6)
        return "default", "none"

    one = contender(redis_server.url, io_timeout=PATIENCE * 6, credential_provider=slow)
    for _ in range(3):
        assert took(lambda: one.request(ask(), clock.now() + SOON)) < PATIENCE * 3
    assert len(asked) == 1
    go_on.set()


def exits() -> str:
    raise SystemExit


def fails() -> str:
    raise LookupError("no such role")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "credential_provider returned a NoneType"),
    "bytes": (SECRET.encode, "credential_provider returned a bytes"),
    "too many": (lambda: ("shop", SECRET, "more"), "credential_provider returned a tuple"),
    "an empty password": (lambda: ("shop", ""), "credential_provider returned a tuple"),
    "an error": (fails, "credential_provider raised LookupError: no such role"),
    "an exit": (exits, "credential_provider raised SystemExit"),
    "a wrong password": (lambda: ("default", SECRET), "Check the user and the password"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_login_is_told_without_the_password(
    own_server: RedisServer, contender: MakeContender, case: str
) -> None:
    provider, says = WRONG[case]
    own_server.client.config_set("requirepass", "word")
    one = contender(f"redis://127.0.0.1:{own_server.port}", credential_provider=provider)
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match=says) as told:
            one.request(ask())
        assert SECRET not in whole_story(told.value)
    assert SECRET not in repr(vars(one))


def test_a_password_that_the_server_quotes_is_not_shown(contender: MakeContender) -> None:
    with server("--rename-command", "AUTH", "") as one:
        asking = contender(f"redis://127.0.0.1:{one.port}", credential_provider=lambda: ("shop", SECRET))
        with pytest.raises(BackendUnavailable, match=r"unknown command 'AUTH'\. ") as told:
            asking.request(ask())
        assert SECRET not in whole_story(told.value)


async def awaited() -> str:
    raise AssertionError


@pytest.mark.parametrize(
    ("url", "provider", "says"),
    [
        ("redis://localhost", "word", "is a str. It has to be a function"),
        ("redis://localhost", redis.CredentialProvider, "is the class CredentialProvider"),
        ("redis://localhost", awaited, "is async"),
        (f"redis://:{SECRET}@localhost", lambda: SECRET, "Take one of them out"),
    ],
)
def test_what_can_give_no_login_is_refused(url: str, provider: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        distlock.connect(url, credential_provider=provider)
    assert SECRET not in whole_story(told.value)

"""What the user of the URL has to be allowed, and what happens where it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.redis_server import RedisServer


def least_rules() -> list[str]:
    """What docs/reference/backends/redis.md says that a user needs, as it stands there."""
    page = (Path(__file__).parents[3] / "docs/reference/backends/redis.md").read_text("utf-8")
    line = re.search(r"ACL SETUSER shop on >password ([^`]*)```", page)
    assert line is not None
    return line[1].split()


LEAST_RULES = least_rules()


@pytest.mark.attack("A39")
def test_a_user_with_the_documented_permissions_can_do_everything(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
    url = f"redis://shop:secret@127.0.0.1:{own_server.port}"
    key, one, two = some_key(), contender(url), contender(url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    assert one.renew([first]) == [True]
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    assert two.cancel(second) is True
    assert two.locked(key)


def test_a_user_without_permissions_is_told_which_page_lists_them(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", "+client|setname")
    one = contender(f"redis://shop:secret@127.0.0.1:{own_server.port}")
    with pytest.raises(BackendUnavailable, match="page 'The redis backend'"):
        one.request(ask())


@pytest.mark.fault("F19")
def test_a_command_that_is_denied_inside_a_script_is_named_with_the_page(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "+@all", "~dl:*", "&dl:*")
    one = contender(f"redis://shop:secret@127.0.0.1:{own_server.port}")
    for command in ("get", "time", "llen", "set"):
        own_server.tell("ACL", "SETUSER", "shop", f"-{command}")
        with pytest.raises(BackendUnavailable, match=rf"the command {command.upper()}\).*The redis backend"):
            one.request(ask())
        own_server.tell("ACL", "SETUSER", "shop", f"+{command}")
    own_server.tell("ACL", "SETUSER", "shop", "resetkeys", "~other:*")
    with pytest.raises(BackendUnavailable, match="page 'The redis backend'"):
        one.request(ask())


def test_what_the_user_may_not_do_is_not_tried(own_server: RedisServer, contender: MakeContender) -> None:
    """A denied command stands in the server's ACL LOG, where somebody looks for intruders."""
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
    own_server.client.config_set("maxmemory-policy", "volatile-lru")
    url = f"redis://shop:secret@127.0.0.1:{own_server.port}"
    key, one, two = some_key(), contender(url), contender(url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    two.poll(second)
    assert own_server.client.acl_log() == []


def test_who_may_not_subscribe_still_gets_the_lock_by_asking(
    own_server: RedisServer, contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "+@all", "~*", "-subscribe")
    one = contender(own_server.url)
    two = contender(f"redis://shop:secret@127.0.0.1:{own_server.port}")
    key = some_key()
    first, second = ask(key), ask(key)
    one.hold(first)
    assert two.queue(second).poll <= 0.1
    assert one.release(first)
    two.poll(second)
    assert "waiters poll" in caplog.text

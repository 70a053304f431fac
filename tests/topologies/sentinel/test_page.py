"""What docs/reference/backends/sentinel.md says that users and settings need, as it stands there."""

from __future__ import annotations

from loadtest.servers.redis_servers import PRIMARY_NAME, tell
from tests.backends.redis.contender import ask
from tests.backends.redis.test_permissions import LEAST_RULES
from tests.docs.blocks import Block, blocks
from tests.redis_server import eventually
from tests.topologies.sentinel.contender import MakeContender
from tests.topologies.sentinel.watched import Calm, client

PAGE = "reference/backends/sentinel.md"


def block(sign: str) -> Block:
    (found,) = (one for one in blocks() if one.page == PAGE and sign in one.text)
    return found


def test_users_with_the_documented_permissions_are_enough_through_a_failover(
    watched: Calm, contender: MakeContender
) -> None:
    rules = block("ACL SETUSER").text.split(">password ")[1].split()
    for port in watched.sentinels:
        assert tell(port, "ACL", "SETUSER", "watch", "on", ">secret", *rules).startswith("+OK")
        assert tell(port, "ACL", "SETUSER", "default", "-subscribe").startswith("+OK")
    for port in watched.servers:
        said = tell(port, "ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES, "+role")
        assert said.startswith("+OK")
    query = "?sentinel_username=watch&sentinel_password=secret"
    url = watched.url.replace("://", "://shop:secret@") + query
    one, two, held = contender(url), contender(url), ask()
    former = watched.primary()
    assert tell(former, "ACL", "SETUSER", "default", "-replicaof", "-slaveof").startswith("+OK")
    waiting = ask(held.key)
    one.hold(held)
    two.queue(waiting)
    watched.fail_over()
    eventually(lambda: "name=distlock" not in tell(former, "CLIENT", "LIST"), "all have heard of it")
    one.hold(held)
    two.queue(waiting)
    assert one.release(held)
    two.poll(waiting)


def test_the_settings_are_those_of_servers_and_sentinels(shared: Calm) -> None:
    for line in block("sentinel monitor").text.splitlines():
        word, name, value, *_ = line.removeprefix("sentinel ").split()
        assert name == "mymaster"
        if word != "monitor":
            assert tell(
                next(iter(shared.sentinels)), "SENTINEL", "SET", PRIMARY_NAME, word, value
            ).startswith("+OK")
    one = client(shared.primary())
    for line in block("min-replicas-to-write").text.splitlines():
        name, value = line.split()
        one.config_set(name, value)
        assert one.config_get(name) == {name: value}
        one.config_set(name, 0)
    one.close()

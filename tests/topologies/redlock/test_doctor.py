"""What the doctor finds in five servers."""

from __future__ import annotations

from collections.abc import Sequence

from distlock.backends.inspectable import Finding
from tests.backend_class import backend_class
from tests.redis_server import eventually
from tests.topologies.redlock.five import Five

RedlockBackend = backend_class("redlock://a,b,c")


def found_by(url: str) -> list[Finding]:
    backend = RedlockBackend(url, io_timeout=30.0)
    try:
        return list(backend.examine())
    finally:
        backend.close()


def about(what: str, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.said) for one in findings if one.about == what]


def test_it_looks_at_each_server_and_says_once_what_is_alike(five: Five) -> None:
    five[1].tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        found = found_by(five.url)
    finally:
        five[1].tell("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert about("servers", found) == [("ok", "All 5 answer, and 2 of them may fail.")]
    assert [level for level, _ in about("independence", found)] == ["ok"]
    assert len(about("server", found)) == 1
    assert [level for level, _ in about("persistence", found)] == ["warning"]
    assert all("opens up to 4." in said for _, said in about("connections", found))
    (evicts,) = (said for level, said in about("eviction", found) if level == "warning")
    assert evicts.startswith(f"127.0.0.1:{five[1].port}: maxmemory-policy is allkeys-lru")


def test_one_server_under_two_names_is_found(five: Five) -> None:
    first, second = five[0].port, five[1].port
    url = f"redlock://127.0.0.1:{first},localhost:{first},127.0.0.1:{second}/0"
    ((level, said),) = about("independence", found_by(url))
    assert level == "error"
    assert said.startswith(f"127.0.0.1:{first} and localhost:{first} are one server")


def test_replicas_are_found_and_servers_that_are_away(own_five: Five) -> None:
    primary, replica, away = own_five[0], own_five[1], own_five[4]
    primary.tell("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    replica.tell("REPLICAOF", "127.0.0.1", str(primary.port))
    eventually(lambda: replica.client.info()["master_link_status"] == "up", "it replicates")
    away.kill()
    found = found_by(own_five.url)
    ((level, said),) = about("independence", found)
    assert level == "error"
    assert said.startswith(f"127.0.0.1:{primary.port} and 127.0.0.1:{replica.port} have one history")
    said_of_each = [said for _, said in about("replication", found)]
    assert any(said.startswith(f"127.0.0.1:{replica.port}: It is a replica") for said in said_of_each)
    ((level, said),) = about("servers", found)
    assert (level, said.partition(".")[0]) == ("warning", "4 of 5 answer, and 1 more may fail")
    assert f"127.0.0.1:{away.port} can't be used" in said

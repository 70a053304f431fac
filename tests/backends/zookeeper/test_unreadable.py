"""A waiter of another program, with an ACL of its own, behind a holder of ours."""

from __future__ import annotations

from contextlib import closing

from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import distlock
from distlock.operate import break_lock
from tests.zookeeper_server import ZooKeeperServer


def test_the_holder_is_seen_asked_and_broken_all_the_same(zookeeper_server: ZooKeeperServer) -> None:
    url = f"zookeeper://127.0.0.1:{zookeeper_server.port}/unreadable"
    admin = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    admin.start()
    try:
        ours, other = distlock.connect(url), distlock.connect(url)
        with closing(ours), closing(other), ours.lock("shared"):
            (parent,) = admin.get_children("/unreadable/distlock-1")
            admin.create(
                f"/unreadable/distlock-1/{parent}/_c_11111111-2222-3333-4444-555555555555-lock-",
                ephemeral=True,
                sequence=True,
                acl=[make_digest_acl("shop", "secret", all=True)],
            )
            state = other.inspect("shared")
            assert (state.holder is not None, state.waiting) == (True, 1)
            assert other.request_release("shared")
            assert break_lock(other.namespace, state, "somebody")
    finally:
        admin.stop()
        admin.close()

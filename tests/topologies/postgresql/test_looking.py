"""What an operator sees of it: the server tells every user what its sessions are called."""

from __future__ import annotations

import os
import socket

from distlock.operate import Party
from tests.topologies.looking import LookingTests
from tests.topologies.postgresql.asking import Connect, asked, waiting, with_role


def is_this_process(party: Party) -> bool:
    # The server keeps the beginning of a long name.
    return (party.host, party.pid) == (socket.gethostname()[: len(party.host) or None], os.getpid())


class TestLooking(LookingTests):
    seen = staticmethod(is_this_process)
    seen_with_few_rights = staticmethod(is_this_process)

    def waiting(self, url: str, key: str) -> int:
        return waiting(url, key)

    def say(self, url: str, statement: str) -> None:
        asked(url, statement)

    def few_rights(self, url: str) -> str:
        return with_role(url, "onlooker")

    def test_a_name_that_the_url_gives_is_shown(self, server: str, connect: Connect, name: str) -> None:
        with connect(f"{server}?application_name=importer").lock(name):
            holder = connect(server).inspect(name).holder
        assert holder is not None
        assert "of PostgreSQL, for importer at 127.0.0.1:" in holder.process
        assert (holder.host, holder.pid) == ("", 0)

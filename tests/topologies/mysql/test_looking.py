"""What an operator sees of it: sessions, and where they come from."""

from __future__ import annotations

import re

from distlock.operate import Party
from tests.topologies.looking import LookingTests
from tests.topologies.mysql.asking import asked, waiting, with_user


def is_shown(party: Party) -> bool:
    return re.fullmatch(r"\d+ of MySQL, for shop at 127\.0\.0\.1:\d+", party.process) is not None


class TestLooking(LookingTests):
    seen = staticmethod(is_shown)
    seen_with_few_rights = staticmethod(
        lambda party: re.fullmatch(r"\d+ of MySQL", party.process) is not None
    )

    def waiting(self, url: str, key: str) -> int:
        return waiting(url, key)

    def say(self, url: str, statement: str) -> None:
        asked(url, statement)

    def few_rights(self, url: str) -> str:
        return with_user(url, "onlooker")

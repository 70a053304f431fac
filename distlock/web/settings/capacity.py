"""What waiting costs a server, and the number that bounds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distlock.web.settings.shape import Problem, by_alias


def uncapped(setting: object) -> Iterator[Problem]:
    """The aliases of *setting*, which is well-formed, that leave open how many threads may wait.

    None in the place of a number says that this is meant.
    """
    for alias, given in (by_alias(setting) or {}).items():
        if _locks(given) and "MAX_WAITERS_TOTAL" not in given:
            yield Problem(
                "value",
                f"DISTLOCK[{alias!r}] has no MAX_WAITERS_TOTAL: a rush for one name may take all threads of "
                "a server process, and requests for other names then wait in the server's own queue.",
                'Write half of the threads of one server process: "MAX_WAITERS_TOTAL": 8 with 16 threads. '
                "None says that no thread has to stay free.",
            )


def _locks(given: Mapping[str, Any]) -> bool:
    return "dummy" not in (given.get("BACKEND"), str(given.get("LOCATION")).partition(":")[0])

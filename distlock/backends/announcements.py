"""What processes say of themselves, kept in this process: see `distlock.backends.inspectable`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distlock.backends.inspectable import Row, Seen


@dataclass
class Announcement:
    """What one process has published."""

    host: str
    pid: int
    ends: float
    rows: dict[str, Row] = field(default_factory=dict)


class Announcements:
    """The published status of all processes. The caller passes the time, *now*, and has a mutex."""

    def __init__(self) -> None:
        self._by_process: dict[str, Announcement] = {}

    def say(
        self,
        process: str,
        host: str,
        pid: int,
        rows: Sequence[Row],
        gone: Sequence[str],
        life: float,
        now: float,
    ) -> bool:
        known = self._by_process.get(process)
        goes_on = known is not None and now < known.ends
        mine = known if known is not None and goes_on else Announcement(host, pid, now)
        mine.rows |= {row.key: row for row in rows}
        for key in gone:
            mine.rows.pop(key, None)
        mine.ends = now + life
        self._by_process[process] = mine
        return goes_on

    def told(self, before: str, now: float) -> list[Seen]:
        self._by_process = {who: one for who, one in self._by_process.items() if now < one.ends}
        return [
            Seen(process, one.host, one.pid, row)
            for process, one in self._by_process.items()
            for key, row in one.rows.items()
            if key.startswith(before)
        ]

    def seen(self, process: str, key: str, now: float) -> Seen:
        said = self._by_process.get(process)
        if said is None or now >= said.ends:
            return Seen(process)
        return Seen(process, said.host, said.pid, said.rows.get(key))

    def forget(self, process: str) -> None:
        self._by_process.pop(process, None)

    def clear(self) -> None:
        self._by_process.clear()

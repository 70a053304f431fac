"""What planted bugs are made of: a backend in memory whose service, or its judgement, is another one."""

from __future__ import annotations

from distlock.backends.memory import MemoryBackend
from distlock.backends.memory.service import KeyRecord, MemoryHold, MemoryService

_services: dict[tuple[type, str], MemoryService] = {}


class Planted(MemoryBackend):
    """A backend whose service has the bug."""

    service_class: type[MemoryService] = MemoryService

    def __init__(self, url: str) -> None:
        super().__init__(url, _services.setdefault((self.service_class, url), self.service_class()))


def planted(service_class: type[MemoryService]) -> type[Planted]:
    words = {"service_class": service_class, "__module__": service_class.__module__}
    return type(service_class.__name__, (Planted,), words)


@planted
class Honest(MemoryService):
    """The control: it has no bug."""


def misjudging(record: type[KeyRecord]) -> type[Planted]:
    """A service that has room where *record* says so."""

    class Misjudging(MemoryService):
        def _current(self, key: str) -> KeyRecord:
            self.records.setdefault(key, record())
            return super()._current(key)

    words = {"service_class": Misjudging, "__module__": record.__module__}
    return type(record.__name__, (Planted,), words)


def owned(record: KeyRecord, mode: str) -> list[MemoryHold]:
    return [hold for hold in record.holds if hold.mode == mode]

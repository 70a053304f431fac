"""Latches as files, in the folder ``latches``. Each count replaces the file of its latch.

The first line of a file has the time when the latch expires, by the host's clock, and the contenders to
notify when it opens. The second line has the latch.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from distlock.backends.file import notifications
from distlock.backends.file.entries import Spot, proof_of, spot_of
from distlock.backends.file.record_locks import SHARDS, RecordLocks
from distlock.backends.file.trusted_directories import NEW, Tree, read_file, write_file
from distlock.backends.latches import LatchRecord, LatchState
from distlock.errors import BackendUnavailable

LATCHES = "latches"
#: How many other latches `make` looks at, to delete expired ones.
_SWEPT = 20


@dataclass
class _LatchFile:
    record: LatchRecord
    ends: float
    watched_by: list[int] = field(default_factory=list)

    def written(self) -> bytes:
        return json.dumps([self.ends, self.watched_by]).encode() + b"\n" + self.record.written()


class LatchFiles:
    """The latches of one lock directory. Thread-safe."""

    def __init__(self, tree: Tree, locks: RecordLocks) -> None:
        self._tree = tree
        self._locks = locks

    def make(self, key: str, total: int, ttl: float, maker: str, patience: float) -> LatchState:
        self._sweep()
        spot = spot_of(key)
        with self._locks.writing(spot.shard, patience):
            kept = self._read(_name(spot))
            if kept is None:
                kept = _LatchFile(LatchRecord(maker, total, total, ttl), time.time() + ttl)
                self._write(spot, kept)
            return self._state(kept)

    def count(self, key: str, by: int, part: str, life: str, patience: float) -> LatchState | None:
        spot, told = spot_of(key), list[int]()
        with self._locks.writing(spot.shard, patience):
            kept = self._read(_name(spot))
            if kept is None or not kept.record.is_life(life):
                return None
            if kept.record.count(by, part):
                kept.ends = time.time() + kept.record.ttl
                if not kept.record.left:
                    told, kept.watched_by = kept.watched_by, []
                self._write(spot, kept)
            state = self._state(kept)
        self._tell(key, told)
        return state

    def delete(self, key: str, life: str, patience: float) -> bool:
        spot = spot_of(key)
        with self._locks.writing(spot.shard, patience):
            kept = self._read(_name(spot))
            if kept is None or not kept.record.is_life(life):
                return False
            os.unlink(f"{LATCHES}/{_name(spot)}", dir_fd=self._tree.root)
        self._tell(key, kept.watched_by)
        return True

    def look(self, key: str) -> LatchState | None:
        kept = self._read(_name(spot_of(key)))
        return None if kept is None else self._state(kept)

    def watch(self, key: str, contender: int, patience: float) -> LatchState | None:
        """As `look`, and have *contender* notified when the latch opens or is deleted."""
        spot = spot_of(key)
        kept = self._read(_name(spot))
        if kept is not None and kept.record.left and contender not in kept.watched_by:
            with self._locks.writing(spot.shard, patience):
                kept = self._read(_name(spot))
                if kept is not None and kept.record.left:
                    others = [one for one in kept.watched_by if self._locks.alive(one)]
                    kept.watched_by = [*others, contender]
                    self._write(spot, kept)
        return None if kept is None else self._state(kept)

    def _tell(self, key: str, contenders: Iterable[int]) -> None:
        for contender in contenders:
            # The latch is open or deleted, even if the notification fails.
            with suppress(OSError):
                notifications.send(self._tree, contender, proof_of(key))

    def _state(self, kept: _LatchFile) -> LatchState:
        return kept.record.state(kept.ends - time.time())

    def _read(self, name: str) -> _LatchFile | None:
        found = read_file(self._tree, LATCHES, name)
        if found is None:
            return None
        about, _, text = found[0].partition(b"\n")
        try:
            ends, watched_by = json.loads(about)
            kept = _LatchFile(LatchRecord.read(text), float(ends), [int(one) for one in watched_by])
        except (ValueError, TypeError) as error:
            raise BackendUnavailable(
                f"The file {LATCHES}/{name} of the lock directory is no latch that distlock wrote ({error}). "
                "If nothing waits for it, delete it."
            ) from error
        return kept if time.time() < kept.ends else None

    def _write(self, spot: Spot, kept: _LatchFile) -> None:
        write_file(self._tree, LATCHES, _name(spot), kept.written())

    def _sweep(self) -> None:
        """Delete some expired latches. They don't end with a process."""
        names = self._tree.listed(LATCHES)
        for name in random.sample(names, min(len(names), _SWEPT)):
            # A latch that can't be read, or is being written, is left alone.
            with suppress(OSError, ValueError, BackendUnavailable):
                if self._is_over(name):
                    shard = int(name.removesuffix(NEW).rpartition("~")[2][:2], 16) % SHARDS
                    with self._locks.writing(shard, 0.0):
                        if self._is_over(name):
                            os.unlink(f"{LATCHES}/{name}", dir_fd=self._tree.root)

    def _is_over(self, name: str) -> bool:
        # If the only writer of the shard sees a file that is being written, a killed process left it.
        return name.endswith(NEW) or self._read(name) is None


def _name(spot: Spot) -> str:
    return spot.prefix.removesuffix("~")

"""Fences do not run ahead of the clock, so they grow although the directory is wiped."""

from __future__ import annotations

import random
import secrets
import shutil
import time
from pathlib import Path

import pytest

from distlock.backends.base import EXCLUSIVE, READ, Acquired, LockRequest, Queued
from distlock.testing.protocol_fixtures import Contender
from tests.backend_class import new_backend


@pytest.mark.parametrize("seed", range(4))
def test_no_history_drives_numbers_ahead_of_the_clock(tmp_path: Path, seed: int) -> None:
    """Each ask takes one number, and more than a microsecond."""
    folder, chance = tmp_path / "locks", random.Random(seed)
    requests: dict[Contender, LockRequest | None] = {
        Contender(new_backend(f"file://{folder}")): None for _ in range(4)
    }
    held: set[str] = set()
    last = 0
    for _ in range(400):
        who = chance.choice(list(requests))
        mine = requests[who]
        if mine is not None and (mine.token in held or chance.random() < 0.2):
            if mine.token not in held:
                if who.backend.cancel(mine):
                    held.add(mine.token)
                    continue
            elif mine.mode == EXCLUSIVE and chance.random() < 0.3:
                assert who.backend.downgrade(mine)  # type: ignore[attr-defined]
                requests[who] = LockRequest(mine.key, mine.token, mine.ttl, 1, mine.wait, READ)
                continue
            else:
                assert who.backend.release(mine)
            requests[who] = None
            continue
        if mine is None:
            mode, wait = chance.choice([EXCLUSIVE, READ]), chance.random() < 0.7
            mine = LockRequest("shop:product_1", secrets.token_hex(16), 60.0, 1, wait, mode)
        answer = who.backend.request(mine)
        requests[who] = mine if isinstance(answer, Acquired | Queued) else None
        if isinstance(answer, Acquired):
            held.add(mine.token)
            last = max(last, answer.number)
            assert answer.number <= time.time_ns() // 1000
    for who in requests:
        who.backend.close()
    shutil.rmtree(folder)
    after = Contender(new_backend(f"file://{folder}"))
    number = after.held(LockRequest("shop:product_1", secrets.token_hex(16), 60.0, 1)).number
    after.backend.close()
    assert number > last

"""Selling out, by more buyers than there are pieces."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.fence.shops import Answered, Shop

THREADS = 8
BUYERS = 48


def sell(shop: Shop, **guard: object) -> None:
    """Sell out: the view reads, thinks and writes."""

    def buy() -> bool:
        qty = shop.read()
        if qty < 1:
            return False
        time.sleep(0.002)
        shop.write(qty - 1)
        return True

    shop.serve(buy, **guard)


def sold_by(shop: Shop) -> int:
    start = threading.Barrier(THREADS)

    def buyer(number: int) -> bool:
        if number < THREADS:
            start.wait()
        for _ in range(100):
            # Overtaken: the numbers of this lock say nothing of the order in which the rows are locked.
            if (answer := shop.post()) != Answered(503, "lock_lost"):
                break
        assert answer.status in {200, 409}
        shop.leave()
        return answer.status == 200

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(buyer, range(BUYERS)))

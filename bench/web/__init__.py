"""A shop with one route for each way to sell a unit: the same rows, and the same transaction around them."""

from __future__ import annotations

#: As the routes and the tables have them. All read the stock, write it, and write an order.
WAYS = {
    "distlock": "distlock",
    "distlock-batch": "distlock, batch=32",
    "redis-py": "redis-py",
    "for-update": "FOR UPDATE",
    "conditional": "conditional UPDATE",
}
#: Those that no target speaks of.
MORE_WAYS = {"distlock-fence": "distlock, fence", "advisory": "advisory lock"}
#: Of a lock, seconds. Nobody is refused: all are measured at the same load.
TIMEOUT = 60.0

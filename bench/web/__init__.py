"""A shop with a route for each way to sell a unit, each with the same rows and the same transaction."""

from __future__ import annotations

#: The names in the tables, by the routes. Each way reads and writes the stock, and writes an order.
WAYS = {
    "distlock": "distlock",
    "distlock-batch": "distlock, batch=32",
    "redis-py": "redis-py",
    "for-update": "FOR UPDATE",
    "conditional": "conditional UPDATE",
}
#: Ways without a target.
MORE_WAYS = {"distlock-fence": "distlock, fence", "advisory": "advisory lock"}
#: Seconds that a caller waits for a lock. No buyer is refused, so all ways have the same load.
TIMEOUT = 60.0

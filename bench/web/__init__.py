"""A shop with a route for each way to sell a unit. All ways write the same rows in one transaction."""

from __future__ import annotations

#: The ways' names in the tables, by their routes. Each way writes the stock and an order.
WAYS = {
    "distlock": "distlock",
    "distlock-batch": "distlock, batch=32",
    "redis-py": "redis-py",
    "for-update": "FOR UPDATE",
    "conditional": "conditional UPDATE",
}
#: Ways without a target.
MORE_WAYS = {"distlock-fence": "distlock, fence", "advisory": "advisory lock"}
#: A timeout so long that no buyer is refused, seconds, so that all ways have the same load.
TIMEOUT = 60.0

"""Metrics by prometheus_client, in its default registry; over several processes in the way that it has."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from distlock.grant import Fence, Grant
from distlock.listening import Where
from distlock.metrics.result import BUCKETS, GRANTED, RESULTS, result_of
from distlock.terms import shown_where

_LABELS = ("alias", "where")

_WAIT = Histogram(
    "distlock_wait_seconds", "How long those waited who were granted their lock", _LABELS, buckets=BUCKETS
)
_HELD = Histogram("distlock_held_seconds", "How long locks were held", _LABELS, buckets=BUCKETS)
_COMMIT = Histogram(
    "distlock_commit_seconds", "From the grant of a guard to its COMMIT", _LABELS, buckets=BUCKETS
)
_ACQUISITIONS = Counter(
    "distlock_acquisitions", "Acquisitions by result: " + ", ".join(RESULTS), (*_LABELS, "result")
)
_LOSSES = Counter("distlock_losses", "Locks that were lost before they were released", _LABELS)
_LIFTS = Counter("distlock_lifts", "Fences that were lifted above what a database had seen", _LABELS)
_RECONNECTS = Counter(
    "distlock_reconnects", "Connections to the lock service in the place of one that broke", _LABELS[:1]
)
# The gauges of processes that have ended count no more.
_WAITING = Gauge("distlock_waiting", "Callers that wait just now", _LABELS, multiprocess_mode="livesum")
_HOLDING = Gauge("distlock_holding", "Locks that are held just now", _LABELS, multiprocess_mode="livesum")


class _Place:
    """The metrics of one place in the code. It is what is told of each acquisition there, too."""

    __slots__ = (
        "_commit",
        "_granted",
        "_held",
        "_holding",
        "_wait",
        "_waiting",
        "lifts",
        "losses",
        "results",
    )

    def __init__(self, *labels: str) -> None:
        self._wait = _WAIT.labels(*labels)
        self._held = _HELD.labels(*labels)
        self._commit = _COMMIT.labels(*labels)
        self._waiting = _WAITING.labels(*labels)
        self._holding = _HOLDING.labels(*labels)
        # All begin at 0: a rate can't see the first of a counter that was not there before.
        self.losses = _LOSSES.labels(*labels)
        self.lifts = _LIFTS.labels(*labels)
        self.results = {result: _ACQUISITIONS.labels(*labels, result) for result in RESULTS}
        self._granted = self.results[GRANTED]

    def asked(self) -> None:
        self._waiting.inc()

    def acquired(self, grant: Grant, waited: float) -> None:
        self._waiting.dec()
        self._wait.observe(waited)
        self._granted.inc()
        self._holding.inc()

    def refused(self, error: BaseException | None, waited: float) -> None:
        self._waiting.dec()
        self.results[result_of(error)].inc()

    def committed(self, held: float) -> None:
        self._commit.observe(held)

    def released(self, held: float) -> None:
        self._holding.dec()
        self._held.observe(held)


class PrometheusMetrics:
    """The listener of the client that *alias* tells from others."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._reconnects = _RECONNECTS.labels(alias)
        #: With what has that id, which keeps it from being another's.
        self._places: dict[int | str, tuple[Where, _Place]] = {}

    def asked(self, names: tuple[str, ...], where: Where) -> _Place:
        place = self._place(where)
        place.asked()
        return place

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        self._place(where).losses.inc()

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        self._place(where).lifts.inc()

    def reconnected(self) -> None:
        self._reconnects.inc()

    def _place(self, where: Where) -> _Place:
        # The hash of code is that of all its names and constants.
        key = where if isinstance(where, str) else id(where)
        known = self._places.get(key)
        if known is None:
            # Two threads may both make one: the metrics in it are the same.
            known = self._places[key] = where, _Place(self._alias, shown_where(where))
        return known[1]

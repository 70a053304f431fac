"""Metrics through prometheus_client, also in its multiprocess mode."""

from __future__ import annotations

import threading
from functools import partial
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from distlock.errors import ConfigurationError
from distlock.grants.grant import Fence, Grant
from distlock.listening import Attempt, Listener, Where
from distlock.metrics.labels import BUCKETS, GRANTED, RESULTS, Places, result_of

_LABELS = ("alias", "where")


class _Metrics:
    """All metrics of distlock in *registry*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str) -> Histogram:
            return Histogram(name, text, _LABELS, buckets=BUCKETS, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            # "livesum" leaves out processes that have ended.
            return Gauge(name, text, _LABELS, registry=registry, multiprocess_mode="livesum")

        results = "Acquisitions by result: " + ", ".join(RESULTS)
        self.wait = histogram("distlock_wait_seconds", "How long those waited who were granted their lock")
        self.held = histogram("distlock_held_seconds", "How long locks were held")
        self.commit = histogram("distlock_commit_seconds", "From the grant of a guard to its COMMIT")
        self.acquisitions = counter("distlock_acquisitions", results, *_LABELS, "result")
        self.losses = counter("distlock_losses", "Locks that were lost before they were released", *_LABELS)
        self.lifts = counter(
            "distlock_lifts", "Fences that were lifted above what a database had seen", *_LABELS
        )
        self.reconnects = counter(
            "distlock_reconnects", "Connections to the lock service in the place of one that broke", "alias"
        )
        self.waiting = gauge("distlock_waiting", "Callers that wait just now")
        self.holding = gauge("distlock_holding", "Locks that were granted and are not released yet")


#: The metrics of each registry, which accepts each name only once.
_known: WeakKeyDictionary[CollectorRegistry, _Metrics] = WeakKeyDictionary()
_mutex = threading.Lock()


def _metrics_in(registry: CollectorRegistry) -> _Metrics:
    with _mutex:
        found = _known.get(registry)
        if found is None:
            found = _known[registry] = _Metrics(registry)
        return found


class _Place(Attempt):
    """The metrics of one place in the code, which also serve as the `Attempt` of each acquisition there."""

    def __init__(self, metrics: _Metrics, alias: str, where: str) -> None:
        labels = alias, where
        self._wait = metrics.wait.labels(*labels)
        self._held = metrics.held.labels(*labels)
        self._commit = metrics.commit.labels(*labels)
        self._waiting = metrics.waiting.labels(*labels)
        self._holding = metrics.holding.labels(*labels)
        # All counters begin at 0, because rate() does not see the first increment of a new counter.
        self.losses = metrics.losses.labels(*labels)
        self.lifts = metrics.lifts.labels(*labels)
        self.results = {result: metrics.acquisitions.labels(*labels, result) for result in RESULTS}
        self._granted = self.results[GRANTED]
        metrics.reconnects.labels(alias)

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


class PrometheusMetrics(Listener):
    """The listener of one client, whose label is *alias*, with its metrics in *registry*."""

    def __init__(self, alias: str, registry: CollectorRegistry = REGISTRY) -> None:
        if not isinstance(registry, CollectorRegistry):
            raise ConfigurationError(
                f"A {type(registry).__name__} is no registry. Pass a CollectorRegistry of prometheus_client."
            )
        self._alias = alias
        self._metrics = _metrics_in(registry)
        self.places = Places(partial(_Place, self._metrics, alias))

    def asked(self, names: tuple[str, ...], where: Where) -> _Place:
        place = self.places.at(where)
        place.asked()
        return place

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        self.places.at(where).losses.inc()

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        self.places.at(where).lifts.inc()

    def reconnected(self) -> None:
        self._metrics.reconnects.labels(self._alias).inc()

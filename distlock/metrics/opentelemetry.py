"""Metrics and spans through the OpenTelemetry API. The process chooses and sets up the SDK."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache, partial

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, Status, StatusCode

from distlock.engine.process import forget_in_children
from distlock.grants.grant import Fence, Grant
from distlock.listening import Attempt, Listener, Where
from distlock.metrics.labels import BUCKETS, GRANTED, RESULTS, Places, result_of


class _PlaceInstruments:
    """The counts of one place in the code, and its attributes.

    The SDK reads the counts when it collects. To add each 1 with the SDK would take ten times as long.
    """

    __slots__ = ("_mutex", "about", "holding", "results", "waiting")

    def __init__(self, alias: str, where: str) -> None:
        self.about = {"distlock.alias": alias, "distlock.where": where}
        self.begin()

    def begin(self) -> None:
        """Start from 0. A forked child starts again, because its parent reports the counts until the fork."""
        self._mutex = threading.Lock()
        self.waiting = 0
        self.holding = 0
        self.results = dict.fromkeys(RESULTS, 0)

    def asked(self) -> None:
        with self._mutex:
            self.waiting += 1

    def ended(self, result: str) -> None:
        with self._mutex:
            self.waiting -= 1
            self.holding += result == GRANTED
            self.results[result] += 1

    def released(self) -> None:
        with self._mutex:
            self.holding -= 1


class _Instruments:
    """The instruments of this process: one of each name, for all clients."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], _PlaceInstruments] = {}
        forget_in_children(self)
        self.tracer = trace.get_tracer("distlock")
        meter = metrics.get_meter("distlock")
        histogram = partial(
            meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=list(BUCKETS)
        )
        self.wait = histogram("distlock.wait", description="Until the grant")
        self.held = histogram("distlock.held", description="How long locks were held")
        self.commit = histogram("distlock.commit", description="From the grant to COMMIT")
        self.losses = meter.create_counter("distlock.losses", "1", "Locks that were lost")
        self.lifts = meter.create_counter("distlock.lifts", "1", "Fences that were lifted")
        self.reconnects = meter.create_counter(
            "distlock.reconnects", "1", "Connections to the lock service in the place of one that broke"
        )
        meter.create_observable_counter(
            "distlock.acquisitions", [self._results], "1", "Acquisitions by result"
        )
        gauge = meter.create_observable_up_down_counter
        gauge("distlock.waiting", [self._waiting], "1", "Callers that wait just now")
        gauge("distlock.holding", [self._holding], "1", "Locks that were granted and are not released yet")

    def after_fork(self) -> None:
        for place in self._places.values():
            place.begin()

    def place(self, alias: str, where: str) -> _PlaceInstruments:
        return self._places.setdefault((alias, where), _PlaceInstruments(alias, where))

    def _results(self, options: CallbackOptions) -> Iterable[Observation]:
        for place in list(self._places.values()):
            for result, count in place.results.items():
                yield Observation(count, {**place.about, "distlock.result": result})

    def _waiting(self, options: CallbackOptions) -> Iterable[Observation]:
        for place in list(self._places.values()):
            yield Observation(place.waiting, place.about)

    def _holding(self, options: CallbackOptions) -> Iterable[Observation]:
        for place in list(self._places.values()):
            yield Observation(place.holding, place.about)


_instruments = cache(_Instruments)


class OpenTelemetryMetrics(Listener):
    """The listener of one client, whose label is *alias*."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._of = _instruments()
        self.places = Places(partial(self._of.place, alias))

    def asked(self, names: tuple[str, ...], where: Where) -> _Spanned:
        return _Spanned(self._of, self.places.at(where))

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        self._of.losses.add(1, self.places.at(where).about)

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        self._of.lifts.add(1, self.places.at(where).about)

    def reconnected(self) -> None:
        self._of.reconnects.add(1, {"distlock.alias": self._alias})


class _Spanned(Attempt):
    """One acquisition: a span while it waits, and a span while the lock is held."""

    __slots__ = ("_of", "_place", "_span")

    def __init__(self, of: _Instruments, place: _PlaceInstruments) -> None:
        self._of = of
        self._place = place
        place.asked()
        self._span: Span = of.tracer.start_span("lock wait", attributes=place.about)

    def acquired(self, grant: Grant, waited: float) -> None:
        self._ended(GRANTED)
        self._of.wait.record(waited, self._place.about)
        self._span = self._of.tracer.start_span("lock held", attributes=self._place.about)

    def refused(self, error: BaseException | None, waited: float) -> None:
        # The status has no description, because the text of an error contains the lock's name.
        self._span.set_status(Status(StatusCode.ERROR))
        self._ended(result_of(error))

    def committed(self, held: float) -> None:
        self._of.commit.record(held, self._place.about)
        self._span.add_event("committed")

    def released(self, held: float) -> None:
        self._span.end()
        self._place.released()
        self._of.held.record(held, self._place.about)

    def _ended(self, result: str) -> None:
        self._place.ended(result)
        self._span.set_attribute("distlock.result", result)
        self._span.end()

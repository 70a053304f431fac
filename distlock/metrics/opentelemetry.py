"""Metrics and spans by the API of OpenTelemetry: to what the process has set up, and to nowhere else."""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, Status, StatusCode

from distlock.grant import Fence, Grant
from distlock.listening import Where
from distlock.metrics.result import BUCKETS, GRANTED, result_of
from distlock.terms import shown_where


class OpenTelemetryMetrics:
    """The listener of the client that *alias* tells from others."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.tracer = trace.get_tracer("distlock")
        meter = metrics.get_meter("distlock")
        buckets = list(BUCKETS)
        self.wait = meter.create_histogram(
            "distlock.wait", "s", "Until the grant", explicit_bucket_boundaries_advisory=buckets
        )
        self.held = meter.create_histogram(
            "distlock.held", "s", "How long locks were held", explicit_bucket_boundaries_advisory=buckets
        )
        self.commit = meter.create_histogram(
            "distlock.commit", "s", "From the grant to COMMIT", explicit_bucket_boundaries_advisory=buckets
        )
        self.acquisitions = meter.create_counter("distlock.acquisitions", "1", "Acquisitions by result")
        self.losses = meter.create_counter("distlock.losses", "1", "Locks that were lost")
        self.lifts = meter.create_counter("distlock.lifts", "1", "Fences that were lifted")
        self.reconnects = meter.create_counter(
            "distlock.reconnects", "1", "Connections to the lock service in the place of one that broke"
        )
        self.waiting = meter.create_up_down_counter("distlock.waiting", "1", "Callers that wait just now")
        self.holding = meter.create_up_down_counter("distlock.holding", "1", "Locks that are held just now")

    def asked(self, names: tuple[str, ...], where: Where) -> _Spanned:
        return _Spanned(self, self._about(where))

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        self.losses.add(1, self._about(where))

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        self.lifts.add(1, self._about(where))

    def reconnected(self) -> None:
        self.reconnects.add(1, {"distlock.alias": self._alias})

    def _about(self, where: Where) -> dict[str, str]:
        return {"distlock.alias": self._alias, "distlock.where": shown_where(where)}


class _Spanned:
    """One acquisition: a span while it waits, and a span while the lock is held."""

    __slots__ = ("_about", "_of", "_span")

    def __init__(self, of: OpenTelemetryMetrics, about: dict[str, str]) -> None:
        self._of = of
        self._about = about
        of.waiting.add(1, about)
        self._span: Span = of.tracer.start_span("lock wait", attributes=about)

    def acquired(self, grant: Grant, waited: float) -> None:
        self._ended(GRANTED)
        self._of.wait.record(waited, self._about)
        self._of.holding.add(1, self._about)
        self._span = self._of.tracer.start_span("lock held", attributes=self._about)

    def refused(self, error: BaseException | None, waited: float) -> None:
        # The text of an error has the name in it.
        self._span.set_status(Status(StatusCode.ERROR))
        self._ended(result_of(error))

    def committed(self, held: float) -> None:
        self._of.commit.record(held, self._about)
        self._span.add_event("committed")

    def released(self, held: float) -> None:
        self._span.end()
        self._of.holding.add(-1, self._about)
        self._of.held.record(held, self._about)

    def _ended(self, result: str) -> None:
        self._span.set_attribute("distlock.result", result)
        self._span.end()
        self._of.waiting.add(-1, self._about)
        self._of.acquisitions.add(1, {**self._about, "distlock.result": result})

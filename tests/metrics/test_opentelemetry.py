"""Metrics and spans by the API of OpenTelemetry, to an SDK that is set up for the test."""

from __future__ import annotations

import os
import signal

from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import distlock
from distlock import metrics
from distlock.metrics.opentelemetry import OpenTelemetryMetrics
from tests.metrics.telemetry import points


def test_metrics_and_spans(reader: InMemoryMetricReader, spans: InMemorySpanExporter) -> None:
    locks = distlock.connect("memory://otel", listener=metrics.listener("opentelemetry", "otel"))
    with trace.get_tracer("site").start_as_current_span("request") as request, locks.lock("secret"):
        assert locks.lock("secret").acquire(timeout=0) is None
    found = points(reader, "otel")
    results = {point.attributes["distlock.result"]: point.value for point in found["distlock.acquisitions"]}
    assert {result: count for result, count in results.items() if count} == {"granted": 1, "timed_out": 1}
    assert [point.count for point in found["distlock.wait"]] == [1]
    assert [point.count for point in found["distlock.held"]] == [1]
    assert [point.value for name in ("waiting", "holding") for point in found[f"distlock.{name}"]] == [0, 0]
    ended = spans.get_finished_spans()
    assert [one.name for one in ended] == ["lock wait", "lock wait", "lock held", "request"]
    for one in ended[:-1]:
        assert one.parent is not None
        assert one.parent.span_id == request.get_span_context().span_id
        assert one.attributes is not None
        assert one.attributes["distlock.alias"] == "otel"
    assert not any("secret" in one.to_json() for one in ended)


def test_each_client_of_a_process_counts(reader: InMemoryMetricReader) -> None:
    clients = [
        distlock.connect("memory://otel", listener=metrics.listener("opentelemetry", alias))
        for alias in ("first", "second", "second")
    ]
    grants = [locks.lock(f"product_{number}").acquire() for number, locks in enumerate(clients)]

    def total(name: str, alias: str) -> int:
        return sum(point.value for point in points(reader, alias)[f"distlock.{name}"])

    assert [total("holding", alias) for alias in ("first", "second")] == [1, 2]
    for grant in grants:
        assert grant is not None
        grant.release()
    assert [total("holding", alias) for alias in ("first", "second")] == [0, 0]
    assert [total("acquisitions", alias) for alias in ("first", "second")] == [1, 2]


def test_a_forked_child_begins_anew(reader: InMemoryMetricReader) -> None:
    listener = OpenTelemetryMetrics("forked")
    locks = distlock.connect("memory://forked", listener=listener)

    def take(name: str) -> distlock.Grant | None:
        return locks.lock(name).acquire()

    kept = take("kept")
    assert kept is not None
    (place,) = (place for (alias, _), place in listener._of._places.items() if alias == "forked")
    # Another thread may count just now.
    with place._mutex:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(20)
                take("product_1")
                status = (place.holding, place.results["granted"]) != (1, 1)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (place.holding, place.results["granted"]) == (1, 1)
    kept.release()

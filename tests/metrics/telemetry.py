"""An SDK of OpenTelemetry that keeps what it was told: a process sets up one, so the tests share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@pytest.fixture(scope="session")
def reader() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    # A process sets it once.
    api.set_meter_provider(provider)
    yield reader
    provider.shutdown()


@pytest.fixture(scope="session")
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


def points(reader: InMemoryMetricReader, alias: str) -> dict[str, list[Any]]:
    """What there is of each metric of *alias*."""
    data = reader.get_metrics_data()
    assert data is not None
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {
        metric.name: [one for one in metric.data.data_points if one.attributes["distlock.alias"] == alias]
        for scope in scopes
        for metric in scope.metrics
    }

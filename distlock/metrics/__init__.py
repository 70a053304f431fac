"""Metrics and traces of a client: for Prometheus, and for OpenTelemetry."""

from __future__ import annotations

from distlock.metrics.choice import KINDS, listener

__all__ = ["KINDS", "listener"]

"""Metrics and traces of a client: for Prometheus, and for OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.errors import ConfigurationError
from distlock.listening import Listener
from distlock.suggestions import install_hint

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["KINDS", "listener"]

KINDS = ("prometheus", "opentelemetry")


def listener(kind: str, alias: str = "default", registry: CollectorRegistry | None = None) -> Listener:
    """Metrics for ``connect(listener=...)``. In a site the setting ``METRICS`` does this for each alias.

    *kind*: ``"prometheus"``, by prometheus_client; or ``"opentelemetry"``, by the API of OpenTelemetry, to
    what the process has set up for it. *alias*: the label that tells this client from others. *registry*:
    that of a site with a registry of its own; None: the default one of prometheus_client.

    Raises `ConfigurationError` for another word, for a *registry* with OpenTelemetry, and where the extra
    ``metrics`` is not installed.

    Example::

        locks = distlock.connect("memory://shop", listener=metrics.listener("prometheus", "shop"))
    """
    if kind not in KINDS:
        raise ConfigurationError(f"{kind!r} is no kind of metrics. Write 'prometheus' or 'opentelemetry'.")
    if registry is not None and kind != "prometheus":
        raise ConfigurationError("OpenTelemetry has no registry. Leave it out: a process sets up a provider.")
    try:
        if kind == "prometheus":
            from distlock.metrics.prometheus import PrometheusMetrics

            return PrometheusMetrics(alias, *([] if registry is None else [registry]))
        from distlock.metrics.opentelemetry import OpenTelemetryMetrics

        return OpenTelemetryMetrics(alias)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Metrics by {kind} need the package {error.name}, which is not installed. "
            f"{install_hint('metrics')}"
        ) from error

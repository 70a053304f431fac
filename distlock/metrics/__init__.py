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
    """Return a listener for ``connect(listener=...)`` that records metrics.

    In a site, the setting ``METRICS`` does this for each alias. *kind*: ``"prometheus"``, for
    prometheus_client; or ``"opentelemetry"``, for the OpenTelemetry SDK that the process has set up. *alias*:
    the label of this client. *registry*: a registry of prometheus_client; None: its default registry.

    Raises `ConfigurationError` for another *kind*, for a *registry* with OpenTelemetry or that is no
    ``CollectorRegistry``, and if the extra ``metrics`` is not installed.

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

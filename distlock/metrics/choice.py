"""From the word of a site to what listens."""

from __future__ import annotations

from distlock.errors import ConfigurationError
from distlock.extras import remedy
from distlock.listening import Listener

KINDS = ("prometheus", "opentelemetry")


def listener(kind: str, alias: str = "default") -> Listener:
    """Metrics for ``connect(listener=...)``. In a site the setting ``METRICS`` does this for each alias.

    *kind*: ``"prometheus"``, by prometheus_client, in its default registry; or ``"opentelemetry"``, by the
    API of OpenTelemetry, to what the process has set up for it. *alias*: the label that tells this client
    from others.

    Raises `ConfigurationError` for another word, and where the extra ``metrics`` is not installed.

    Example::

        locks = distlock.connect("memory://shop", listener=metrics.listener("prometheus", "shop"))
    """
    if kind not in KINDS:
        raise ConfigurationError(f"{kind!r} is no kind of metrics. Write 'prometheus' or 'opentelemetry'.")
    try:
        if kind == "prometheus":
            from distlock.metrics.prometheus import PrometheusMetrics

            return PrometheusMetrics(alias)
        from distlock.metrics.opentelemetry import OpenTelemetryMetrics

        return OpenTelemetryMetrics(alias)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Metrics by {kind} need the package {error.name}, which is not installed. {remedy('metrics')}"
        ) from error

"""The settings, read when they are needed, so that `override_settings` works."""

from __future__ import annotations

from django.conf import settings
from django.core.signals import setting_changed

from distlock.web.services import Services, without_settings
from distlock.web.settings import Service, contended_status, read


def _read() -> dict[str, Service]:
    setting = getattr(settings, "DISTLOCK", None)
    return without_settings(settings.DEBUG) if setting is None else read(setting)


services = Services(_read)


def status() -> int:
    """The status of the answer to a request that found the lock taken."""
    return contended_status(getattr(settings, "DISTLOCK_CONTENDED_STATUS", 423))


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting in {"DISTLOCK", "DEBUG"}:
        services.reset()


setting_changed.connect(_forget, dispatch_uid="django_distlock")

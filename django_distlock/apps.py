from __future__ import annotations

from django.apps import AppConfig


class DistlockConfig(AppConfig):
    name = "django_distlock"
    label = "distlock"
    verbose_name = "Distributed locks"

    def ready(self) -> None:
        # Importing registers them.
        from django_distlock import checks  # noqa: F401

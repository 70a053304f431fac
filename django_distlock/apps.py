from __future__ import annotations

from django.apps import AppConfig


class DistlockConfig(AppConfig):
    name = "django_distlock"
    label = "distlock"
    verbose_name = "Distlock"

    def ready(self) -> None:
        # Importing registers them.
        from django_distlock.checks import fences, guards, settings  # noqa: F401
        from django_distlock.conf import refuse_without_middleware

        # Servers run no checks, and the middleware that would notice is the very thing that is missing.
        refuse_without_middleware()

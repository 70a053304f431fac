from __future__ import annotations

from django.apps import AppConfig


class DistlockConfig(AppConfig):
    name = "django_distlock"
    label = "distlock"
    verbose_name = "Distlock"

    def ready(self) -> None:
        # Importing these modules registers their checks.
        from django_distlock.checks import guards, settings  # noqa: F401
        from django_distlock.conf import refuse_without_middleware
        from django_distlock.fresh.session import watch_sessions
        from django_distlock.fresh.stale_writes import follow_settings
        from django_distlock.fresh.user import watch_users

        watch_users()
        watch_sessions()
        # Servers don't run checks, and a missing middleware can't say so itself.
        refuse_without_middleware()
        settings.look_at_first_request()
        follow_settings()

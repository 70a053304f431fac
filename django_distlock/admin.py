"""Where Django's admin looks for pages: *Locks*. `LockAdmin` is for a site with an admin of its own."""

from __future__ import annotations

from django.contrib import admin

from django_distlock.models import Lock
from django_distlock.operate.lock_admin import LockAdmin

__all__ = ["LockAdmin"]

admin.site.register(Lock, LockAdmin)

"""Adds the page *Locks* to Django's default admin. For another `AdminSite`, register `LockAdmin` there."""

from __future__ import annotations

from django.contrib import admin

from django_distlock.models import Lock
from django_distlock.operate.lock_admin import LockAdmin

__all__ = ["LockAdmin"]

admin.site.register(Lock, LockAdmin)

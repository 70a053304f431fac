"""The code that `django_distlock` and `flask_distlock` share. It imports no web framework."""

from __future__ import annotations

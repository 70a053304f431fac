"""System checks, which ``manage.py check`` runs."""

from __future__ import annotations

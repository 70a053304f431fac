"""The package whose modules Django runs as commands of ``manage.py``."""

from __future__ import annotations

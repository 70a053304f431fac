"""What ``manage.py check`` says of locks."""

from __future__ import annotations

"""The servers of a run: each is private to it, on free ports of the loopback, and gone in the end."""

from __future__ import annotations

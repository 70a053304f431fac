"""The ``DISTLOCK`` setting: what it may say, and the clients that it makes."""

from __future__ import annotations

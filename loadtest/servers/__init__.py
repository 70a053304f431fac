"""The servers of a run, which starts them on free ports of the loopback, and stops them at its end."""

from __future__ import annotations

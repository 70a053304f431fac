"""The reports of runs: sentences and timelines, at the terminal and as files."""

from __future__ import annotations

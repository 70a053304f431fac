"""What a run shows: sentences and timelines, at the terminal and as a file."""

from __future__ import annotations

"""How much memory this process has had at once."""

from __future__ import annotations

import re
from pathlib import Path

#: By how much a process may grow for what others send, bytes.
LITTLE = 128 << 20


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return how much memory the process has had at once since `reset_peak`, bytes."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) << 10

"""What to run where an extra of the distribution is missing. Every error that says so says it by this."""

from __future__ import annotations


def remedy(extra: str) -> str:
    """The sentence that names the command which installs *extra*."""
    # A bare name would be looked up on a package index, where nothing of ours is.
    return f"Run: pip install '/path/to/the/clone[{extra}]', or the same with the path of the wheel."

"""What an operator looks at in each of these servers."""

from __future__ import annotations

from distlock.backends.findings import Finding

#: A share of the sessions that the server accepts.
_NEARLY_ALL = 0.9


def connections(here: int, most: int, sessions: int) -> Finding:
    """*here* of at most *most* are open. *sessions*: how many a process of ours may open."""
    said = f"{here} of at most {most} are open; one process opens up to {sessions}."
    if here + sessions > most * _NEARLY_ALL:
        remedy = "Raise max_connections of the server, or lower max_connections in OPTIONS."
        return Finding("warning", "connections", said, remedy)
    return Finding("ok", "connections", said)

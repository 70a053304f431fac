"""A shop that deducts stock, in Django, Flask and Quart over one database, safe or unsafe by choice."""

from __future__ import annotations

#: The statements with which all frameworks set up a connection to SQLite: readers can read beside a writer, a
#: COMMIT needs no fsync, and writers wait for each other, for up to 30 seconds.
SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=30000")

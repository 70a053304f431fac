"""The database of a stack: a file of the run, a server started for it, or one that is there already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from loadtest.mariadb import running_mariadb
from loadtest.postgresql import running_postgresql

SERVERS = {"postgresql": running_postgresql, "mariadb": running_mariadb}
DATABASES = ("sqlite", *SERVERS)
SCHEMES = ("sqlite", "postgresql", "mysql", "mariadb")


def kind_of(database: str) -> str:
    """Which of `DATABASES` a name or URL is. ValueError, with what there is, if it is none."""
    scheme, separator, _ = database.partition("://")
    scheme = scheme.partition("+")[0]
    if database in DATABASES:
        return database
    if separator and scheme in SCHEMES:
        return {"mysql": "mariadb"}.get(scheme, scheme)
    urls = ", ".join(f"{scheme}://…" for scheme in SCHEMES)
    raise ValueError(f"there is no database {database!r}; there are: {', '.join(DATABASES)}, and {urls}")


@contextlib.contextmanager
def open_database(database: str, directory: Path) -> Iterator[str]:
    """The URL of *database*, which is one of `DATABASES` or a URL already."""
    if database == "sqlite":
        yield f"sqlite:///{directory / 'shop.sqlite3'}"
    elif database in SERVERS:
        with SERVERS[database]() as url:
            yield url
    else:
        # The options are looked at before anything is installed.
        from loadtest.given_database import check_is_ours

        check_is_ours(database)
        yield database

"""The fence table, for a site's own ``MetaData``. Importing this module needs SQLAlchemy."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from distlock.fence.stamps import TABLE


def fence_table(metadata: MetaData) -> Table:
    """Add the fence table to *metadata*, and return it. `django_distlock` has the same table."""
    return Table(
        TABLE,
        metadata,
        Column("id", String(64), primary_key=True),
        Column("namespace", String(64), nullable=False),
        Column("name", String(255), nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("holder_id", String(32), nullable=False),
        Column("passed_at", BigInteger, nullable=False),
    )

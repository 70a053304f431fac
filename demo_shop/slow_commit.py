"""A COMMIT that takes a while, as where disks and replicas are real: on PostgreSQL, by a deferred trigger.

Elsewhere nothing would be seen: SQLite lets one transaction write at a time, and the next one waits for its
COMMIT, lock or no lock.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

FUNCTION = """
CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$
"""
#: Deferred: it runs when COMMIT is asked for, with everything written and nothing visible to others.
TRIGGER = """
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON purchase DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION slow_commit()
"""


def slow_down(shop: Session, seconds: float) -> None:
    """Let each COMMIT of an order take *seconds* longer; 0: as long as it takes."""
    if shop.get_bind().dialect.name != "postgresql":
        return
    shop.execute(text("DROP TRIGGER IF EXISTS slow_commit ON purchase"))
    shop.execute(text("DROP FUNCTION IF EXISTS slow_commit"))
    if seconds:
        shop.execute(text(FUNCTION.format(seconds=float(seconds))))
        shop.execute(text(TRIGGER))

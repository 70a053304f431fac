"""A database that somebody gives to the load test: is it empty, or ours?"""

from __future__ import annotations

from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from demo_shop.ledger import database_url
from demo_shop.tables import Base
from loadtest.child import StackError


def check_is_ours(url: str) -> None:
    """A sale empties its tables: `StackError` if some of them are somebody else's, or can't be reached."""
    engine = create_engine(database_url(url), poolclass=NullPool)
    try:
        found = set(inspect(engine).get_table_names())
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise StackError(f"the database does not let us in: {reason}") from None
    finally:
        engine.dispose()
    ours = set(Base.metadata.tables)
    if found & ours and not ours <= found:
        theirs = ", ".join(sorted(found & ours))
        raise StackError(f"the database has tables of its own ({theirs}). Give the load test an empty one.")

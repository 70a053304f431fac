"""What a forked process needs where SQLAlchemy is. Nothing is imported where it is not."""

from __future__ import annotations

import gc
import sys


def after_fork() -> None:
    """In the child: forget the pooled connections, which are the parent's."""
    if "sqlalchemy" not in sys.modules:
        return
    from sqlalchemy import Engine

    for one in gc.get_objects():
        # What stands for something else would answer isinstance() by looking for that.
        if issubclass(type(one), Engine):
            one.dispose(close=False)

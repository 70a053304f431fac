"""What a listener of the site reads when a transaction begins decides what the transaction sees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import Session

from flask_distlock.sql.fenced_sessions import fenced
from tests.databases import on
from tests.fence.conftest import write_row
from tests.fence.shops import Answered, FlaskShop, open_shop
from tests.fence.test_passing import grant, until_it_waits

READ = "SELECT qty FROM stock WHERE id = 1"


def after_begin(session: Any, engine: Engine, read: Callable[[Any], None]) -> None:
    event.listen(session, "after_begin", lambda session, transaction, connection: read(connection))


def begin(session: Any, engine: Engine, read: Callable[[Any], None]) -> None:
    event.listen(engine, "begin", read)


@on("postgresql", "mariadb")
@pytest.mark.parametrize("listen", [after_begin, begin])
@pytest.mark.parametrize("row", ["a row", "no row yet"])
def test_a_listener_that_reads_before_the_fence_does_not_make_the_view_see_what_was_before_its_wait(
    engine: Engine, listen: Any, row: str
) -> None:
    """On MariaDB under REPEATABLE READ nothing said that the snapshot was older than the wait."""
    listening = create_engine(engine.url, isolation_level="REPEATABLE READ")
    if row == "a row":
        write_row(engine, 0)
    began = threading.Event()

    def read(connection: Any) -> None:
        connection.execute(text(READ)).all()
        began.set()

    def second() -> int:
        with Session(listening) as session:
            listen(session, listening, read)
            with fenced(session, listening, grant(2, "second"), lambda: 30.0):
                return int(session.execute(text(READ)).scalar_one())

    with ThreadPoolExecutor(1) as pool, Session(engine) as session:
        with fenced(session, engine, grant(1), lambda: 30.0):
            seen = pool.submit(second)
            assert began.wait(30)
            until_it_waits(engine)
            session.execute(text("UPDATE stock SET qty = 0"))
            session.commit()
        assert seen.result(60) == 0
    listening.dispose()


@on("mariadb")
def test_a_later_transaction_whose_snapshot_is_stale_is_not_committed(engine: Engine, using: str) -> None:
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        assert isinstance(shop, FlaskShop)
        committed = threading.Event()

        def read(session: Session, transaction: Any, connection: Any) -> None:
            connection.execute(text(READ)).all()
            if committed.is_set():
                # Between its snapshot and its row somebody else passes, with an earlier number.
                write_row(engine, 0, "other", "UPDATE stock SET qty = 0 WHERE id = 1")

        def view() -> None:
            shop.write(7)
            shop.db.session.commit()
            committed.set()
            shop.write(shop.read() - 1)

        with shop.app.app_context():
            event.listen(shop.db.session, "after_begin", read, insert=True)
        shop.serve(view)
        assert shop.post() == Answered(503, "lock_lost")
    with engine.connect() as connection:
        assert connection.execute(text(READ)).scalar_one() == 0

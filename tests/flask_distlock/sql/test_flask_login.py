"""``current_user`` of Flask-Login under a lock: an instance of the guard's session is read again there.

The guard ends the transaction in which a request has loaded its user, so the session loads it anew.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from flask import request
from flask_login import LoginManager, UserMixin, current_user, login_required

from flask_distlock import distributed_lock
from tests.flask_distlock.sql.sales import Open, Store

BUYERS, COINS = 8, 3


def customers(store: Store) -> Any:
    """The model of users. Every request is of the first one, and is loaded before its lock."""
    db = store.db

    class Customer(UserMixin, db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)
        balance = db.Column(db.Integer, nullable=False)

    with store.app.app_context():
        db.create_all()
        db.session.query(Customer).delete()
        db.session.add(Customer(id=1, balance=COINS))
        db.session.commit()
    LoginManager(store.app).request_loader(lambda request: db.session.get(Customer, 1))
    return Customer


@pytest.mark.attack("A40")
@pytest.mark.parametrize("words", [{}, {"fence": True}, {"fence": True, "batch": 32}], ids=str)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_as_many_coins_are_spent_as_there_are(open_store: Open, kind: str, words: dict[str, Any]) -> None:
    store = open_store(kind)
    customer = customers(store)
    everybody, seen = threading.Barrier(BUYERS), Counter[int]()

    @store.app.before_request
    def load() -> None:
        seen[current_user.balance] += 1
        everybody.wait(100)

    @store.app.post("/spend")
    @login_required
    @distributed_lock("user_<user.pk>", **words)
    def spend() -> tuple[str, int]:
        if current_user.balance < 1:
            return "no coins left", 409
        current_user.balance -= 1
        store.db.session.commit()
        return f"spent by {request.method}", 200

    answers = Counter[int]()

    def ask() -> None:
        answers[store.app.test_client().post("/spend").status_code] += 1

    threads = [threading.Thread(target=ask) for _ in range(BUYERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {COINS: BUYERS}
    assert answers == {200: COINS, 409: BUYERS - COINS}
    with store.app.app_context():
        assert store.db.session.get(customer, 1).balance == 0

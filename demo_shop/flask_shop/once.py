"""Exactly one order for each ``Idempotency-Key``, in Flask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from flask import Response, jsonify, make_response, request
from sqlalchemy import CursorResult, insert, update
from sqlalchemy.exc import IntegrityError

from demo_shop.flask_shop.database import db
from demo_shop.once import HEADER, REPLAYED, Asked, lock_names, read_asked
from demo_shop.sale import Refusal
from demo_shop.tables import Answer

View = Callable[..., Response]


def key_name(*_: Any, **__: Any) -> Iterable[str]:
    return lock_names(request.headers.get(HEADER))


def once(view: View) -> View:
    """*view*, whose changes are committed together with its answer. Stands below the lock."""

    @functools.wraps(view)
    def answer(**kwargs: Any) -> Response:
        same = (request.method, request.path, request.query_string, request.get_data())
        asked = read_asked(request.headers.get(HEADER), *same)
        if asked is None:
            response = view(**kwargs)
            db.session.commit()
            return response
        try:
            # Before everything else: where no lock helps, a second one waits here for the first.
            write(asked)
            response = sell(view, kwargs)
            keep(asked, response)
            db.session.commit()
        except Taken:
            db.session.rollback()
            return replay(asked)
        return response

    return answer


class Taken(Exception):
    """The key is in the database already."""


def sell(view: View, kwargs: dict[str, Any]) -> Response:
    try:
        response = view(**kwargs)
    except Refusal as refusal:
        response = refuse(refusal)
    if response.status_code >= 400:
        # What it changed before it refused.
        db.session.rollback()
    return response


def write(asked: Asked, status: int = 0, body: str = "") -> None:
    row = {"status": status, "body": body, "created_at": datetime.now(UTC)}
    try:
        db.session.execute(insert(Answer).values(key=asked.key, fingerprint=asked.fingerprint, **row))
    except IntegrityError as error:
        raise Taken from error


def keep(asked: Asked, response: Response) -> None:
    if response.status_code >= 500:
        return
    status, body = response.status_code, response.get_data(as_text=True)
    done = db.session.execute(update(Answer).where(Answer.key == asked.key).values(status=status, body=body))
    assert isinstance(done, CursorResult)
    if not done.rowcount:
        # The view has rolled back, and the key with it.
        write(asked, status, body)


def replay(asked: Asked) -> Response:
    first = db.session.get_one(Answer, asked.key)
    asked.refuse_another(first.fingerprint)
    return Response(first.body, first.status, {REPLAYED: "true"}, content_type="application/json")


def refuse(refusal: Refusal) -> Response:
    return make_response(jsonify(refusal.said), refusal.status)

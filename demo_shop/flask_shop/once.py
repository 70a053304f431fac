"""Exactly one order for each ``Idempotency-Key``, in Flask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from flask import Response, jsonify, make_response, request

from demo_shop.answers import Taken, first, keep, write
from demo_shop.flask_shop.database import db
from demo_shop.once import HEADER, REPLAYED, Asked, lock_names, read_asked
from demo_shop.sale import Refusal

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
            write(db.session, asked)
            response = sell(view, kwargs)
            keep(db.session, asked, response.status_code, response.get_data(as_text=True))
            db.session.commit()
        except Taken:
            db.session.rollback()
            return replay(asked)
        return response

    return answer


def sell(view: View, kwargs: dict[str, Any]) -> Response:
    try:
        response = view(**kwargs)
    except Refusal as refusal:
        response = refuse(refusal)
    if response.status_code >= 400:
        # What it changed before it refused.
        db.session.rollback()
    return response


def replay(asked: Asked) -> Response:
    found = first(db.session, asked)
    return Response(found.body, found.status, {REPLAYED: "true"}, content_type="application/json")


def refuse(refusal: Refusal) -> Response:
    return make_response(jsonify(refusal.said), refusal.status)

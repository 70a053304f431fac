"""The page of locks as a blueprint: for each alias, and for one lock; and to break it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flask import Blueprint, Response, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

import distlock.web.operate
from distlock.errors import LockError
from distlock.locks import Locks
from distlock.web.operate.one_lock import CONSEQUENCES, Sighting, break_seen, is_hold, look
from distlock.web.operate.overview import overview
from flask_distlock.guarding.state import current_state
from flask_distlock.operate.access import Access, check_access, refuse_foreign, refuse_unfit

_BROKEN = "broken"
_PASSED = "passed"
#: What the page says after a break, by what its address says.
_NEWS = {
    _BROKEN: "The lock was broken.",
    _PASSED: "Nothing was broken: the lock has been released or has passed on meanwhile.",
}


def locks_blueprint(
    allowed: Access | None = None,
    *,
    may_break: Access | None = None,
    user: Callable[[], str] | None = None,
    name: str = "distlock",
    url_prefix: str = "/locks",
) -> Blueprint:
    """A blueprint with the page of the app's locks: what is held and waited for, one lock, and to break it.

    *allowed*: called without arguments in each request to it. True: the request goes on; False: 403; a
    response, such as a redirect to the login: that is the answer. None: `ConfigurationError`.
    *may_break*: the same for requests that break a lock, after *allowed*; None: that is enough.
    *user*: called without arguments when a lock is broken, returns the name for the log; None: what the
    server knows of the user, or else the address.
    *name*: of the blueprint, for ``url_for``. *url_prefix*: where its pages are.

    Raises `ConfigurationError` without *allowed*, and for what can't be called.

    Example::

        app.register_blueprint(locks_blueprint(allowed=lambda: request.remote_user == "ann"))
    """
    refuse_unfit("allowed", allowed)
    assert allowed is not None
    breaks = allowed
    if may_break is not None:
        refuse_unfit("may_break", may_break)
        breaks = may_break
    static = Path(distlock.web.operate.__file__).with_name("static")
    blueprint = Blueprint(
        name, __name__, url_prefix=url_prefix, template_folder="templates", static_folder=str(static)
    )

    @blueprint.before_request
    def check() -> Response | None:
        return check_access("allowed", allowed)

    @blueprint.after_request
    def harden(response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Content-Security-Policy"] = "frame-ancestors 'none'"
        return response

    @blueprint.get("/")
    def index() -> str:
        """What is held or waited for."""
        aliases = current_state().clients.aliases()
        alias, before = request.args.get("alias") or aliases[0], request.args.get("q", "")
        seen = overview(_client(alias), before)
        return render_template("distlock/locks.html", aliases=aliases, alias=alias, before=before, seen=seen)

    @blueprint.get("/lock")
    def lock() -> str:
        """One lock: holder and queue."""
        alias, of = _named()
        news = _NEWS.get(request.args.get("news", ""), "")
        seen = look(_client(alias), of)
        return render_template("distlock/lock.html", alias=alias, name=of, seen=seen, news=news)

    @blueprint.get("/break")
    def ask() -> str | Response:
        """Ask whether to break what was seen."""
        if (answer := check_access("may_break", breaks)) is not None:
            return answer
        alias, of = _named()
        hold, seen = _hold(), look(_client(alias), of)
        return render_template(
            "distlock/break.html", alias=alias, name=of, hold=hold, seen=seen, consequences=CONSEQUENCES
        )

    @blueprint.post("/break")
    def break_() -> AnyResponse | tuple[str, int]:
        """Break it, and nothing after it."""
        refuse_foreign()
        if (answer := check_access("may_break", breaks)) is not None:
            return answer
        alias, of = _named()
        try:
            broken = break_seen(_client(alias), of, _hold(), by=(user or _user)())
        except LockError as error:
            trouble = Sighting(trouble=str(error))
            return render_template("distlock/break.html", alias=alias, name=of, seen=trouble), 503
        news = _PASSED if broken is None else _BROKEN
        return redirect(url_for(".lock", alias=alias, name=of, news=news), 303)

    return blueprint


def _client(alias: str) -> Callable[[], Locks]:
    """Makes the client of *alias*."""
    clients = current_state().clients
    if alias not in clients.aliases():
        abort(404, description=f"DISTLOCK has no alias {alias!r}.")
    return partial(clients.__getitem__, alias)


def _named() -> tuple[str, str]:
    """Alias and name."""
    alias, name = request.values.get("alias"), request.values.get("name")
    if not alias or not name:
        abort(404, description="There is no such lock.")
    return alias, name


def _hold() -> str:
    """What names the hold that was seen."""
    if not is_hold(hold := request.values.get("hold", "")):
        abort(404, description="There is no such hold.")
    return hold


def _user() -> str:
    basic = request.authorization
    known = request.remote_user or (basic.username if basic is not None else None)
    return known or f"somebody at {request.remote_addr}"

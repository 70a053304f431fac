"""A blueprint of pages that list the locks of an alias, show one, request its release, and break it.

The site decides who may see the pages. Requests from pages of other sites change nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import flask
from werkzeug.wrappers import Response as AnyResponse

from distlock.errors import ConfigurationError, LockError
from distlock.locks.client import Locks
from distlock.terms import LOCK, Kind
from distlock.web.operate import pages
from distlock.web.operate.pages import break_hold, is_hold, is_kind, request_release
from flask_distlock.guarding.app_state import current_state

__all__ = ["locks_blueprint"]

_BROKEN = "broken"
_PASSED = "passed"
_ASKED = "asked"
_FREE = "free"
#: The page's messages after a break or a request for a release, by the ``news`` in its URL.
_NEWS = {
    _BROKEN: "The lock was broken.",
    _PASSED: "Nothing was broken: the lock has been released or has passed on meanwhile.",
    _ASKED: "Its holder was asked to give it back. It is told within some seconds, and may go on.",
    _FREE: "Nobody was asked: nobody holds it.",
}


def locks_blueprint(
    allowed: Access | None = None,
    *,
    may_break: Access | None = None,
    user: Callable[[], str] | None = None,
    name: str = "distlock",
    url_prefix: str = "/locks",
) -> flask.Blueprint:
    """Return a blueprint with pages of the app's locks: list them, show one, request its release, break it.

    *allowed*: called without arguments in each request to the pages. It returns True to let the request in,
    False to answer 403, or a response, such as a redirect to the login. None: `ConfigurationError`.
    *may_break*: the same for requests that break a lock or request its release, after *allowed*; None:
    *allowed* is enough.
    *user*: called without arguments when a lock is broken or its release requested, returns the name of the
    user for the log; None: ``REMOTE_USER`` or the name from basic authentication, else the client's address.
    *name*: the blueprint's name, for ``url_for``.
    *url_prefix*: the prefix of the pages' URLs.

    Raises `ConfigurationError` without *allowed*, and if *allowed* or *may_break* is async or can't be
    called.

    Example::

        app.register_blueprint(locks_blueprint(allowed=lambda: request.remote_user == "ann"))
    """
    refuse_unfit("allowed", allowed)
    assert allowed is not None
    breaks = allowed
    if may_break is not None:
        refuse_unfit("may_break", may_break)
        breaks = may_break
    blueprint = flask.Blueprint(
        name, __name__, url_prefix=url_prefix, template_folder="templates", static_folder=str(pages.STATIC)
    )

    @blueprint.before_request
    def check() -> flask.Response | None:
        return check_access("allowed", allowed)

    @blueprint.after_request
    def harden(response: flask.Response) -> flask.Response:
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Content-Security-Policy"] = "frame-ancestors 'none'"
        return response

    @blueprint.get("/")
    def index() -> str:
        """Show the names that are held or waited for."""
        aliases = current_state().clients.aliases()
        alias, before = flask.request.args.get("alias") or aliases[0], flask.request.args.get("q", "")
        return _page("Locks", pages.LOCKS_HTML, pages.locks_page(_client(alias), aliases, alias, before, _at))

    @blueprint.get("/lock")
    def lock() -> str:
        """Show one lock: its holder and its queue."""
        alias, of, kind = _named()
        news = _NEWS.get(flask.request.args.get("news", ""), "")
        shown = pages.lock_page(_client(alias), alias, of, _at, may_break=True, kind=kind)
        if shown["can_ask"]:
            shown["ask_back"] = flask.url_for(".ask_back")
            shown["hidden"] = _hidden(alias, of, kind)
        return _page(kind.capitalize(), pages.LOCK_HTML, shown, alias=alias, name=of, news=news)

    @blueprint.post("/ask")
    def ask_back() -> AnyResponse | tuple[str, int]:
        """Request the release of the lock from its holder."""
        refuse_foreign()
        if (answer := check_access("may_break", breaks)) is not None:
            return answer
        alias, of, kind = _named()
        try:
            asked = request_release(_client(alias), of, kind, by=(user or _user)())
        except LockError as error:
            return _question(
                {"trouble": str(error), "back": _at.lock(alias, of, kind)}, alias, of, "", kind
            ), 503
        news = _FREE if asked is None else _ASKED
        return flask.redirect(_at.lock(alias, of, kind, news=news), 303)

    @blueprint.get("/break")
    def ask() -> str | flask.Response:
        """Ask for confirmation to break the hold that the page has shown."""
        if (answer := check_access("may_break", breaks)) is not None:
            return answer
        alias, of, kind = _named()
        hold = _hold()
        shown = pages.break_page(_client(alias), alias, of, hold, _at, kind)
        return _question(shown, alias, of, hold, kind)

    @blueprint.post("/break")
    def break_() -> AnyResponse | tuple[str, int]:
        """Break the hold that the page has shown, and no later one."""
        refuse_foreign()
        if (answer := check_access("may_break", breaks)) is not None:
            return answer
        alias, of, kind = _named()
        try:
            broken = break_hold(_client(alias), of, _hold(), (user or _user)(), kind)
        except LockError as error:
            return _question(
                {"trouble": str(error), "back": _at.lock(alias, of, kind)}, alias, of, "", kind
            ), 503
        news = _PASSED if broken is None else _BROKEN
        return flask.redirect(_at.lock(alias, of, kind, news=news), 303)

    return blueprint


class _Addresses:
    """See `distlock.web.operate.pages.Addresses`."""

    def locks(self, alias: str, before: str) -> str:
        return flask.url_for(".index", alias=alias, q=before or None)

    def lock(self, alias: str, name: str, kind: Kind, news: str | None = None) -> str:
        return flask.url_for(".lock", alias=alias, name=name, kind=_unless_lock(kind), news=news)

    def confirm_break(self, alias: str, name: str, hold: str, kind: Kind) -> str:
        return flask.url_for(".ask", alias=alias, name=name, hold=hold, kind=_unless_lock(kind))


_at = _Addresses()


def _page(title: str, page: str, shown: pages.Context, **context: object) -> str:
    """Render *shown* with *page*, inside the frame of all pages. *context*: the variables of the frame."""
    content = flask.render_template_string((pages.TEMPLATES / page).read_text("utf-8"), **shown)
    return flask.render_template("distlock/page.html", title=title, content=content, **context)


def _question(shown: pages.Context, alias: str, name: str, hold: str, kind: Kind) -> str:
    shown["action"] = flask.url_for(".break_")
    shown["hidden"] = [*_hidden(alias, name, kind), ("hold", hold)]
    return _page(f"Break the {kind}", pages.BREAK_HTML, shown, alias=alias, name=name, end="?")


def _hidden(alias: str, name: str, kind: Kind) -> list[tuple[str, str]]:
    """Return the hidden fields of a form about one lock."""
    fields = [("alias", alias), ("name", name), ("kind", kind)]
    # Flask-WTF, if the site has it, refuses forms without its token.
    token: Any = flask.current_app.jinja_env.globals.get("csrf_token")
    return fields if token is None else [*fields, ("csrf_token", token())]


def _unless_lock(kind: Kind) -> Kind | None:
    return None if kind == LOCK else kind


def _client(alias: str) -> Callable[[], Locks]:
    """Return a function that returns the client of *alias*. Answers 404 if there is no such alias."""
    clients = current_state().clients
    if alias not in clients.aliases():
        flask.abort(404, description=f"DISTLOCK has no alias {alias!r}.")
    return partial(clients.__getitem__, alias)


def _named() -> tuple[str, str, Kind]:
    """Return the alias, name and kind of the request's lock. Answers 404 if one is missing or wrong."""
    alias, name = flask.request.values.get("alias"), flask.request.values.get("name")
    if not alias or not name or not is_kind(kind := flask.request.values.get("kind", LOCK)):
        flask.abort(404, description="There is no such lock.")
    return alias, name, kind


def _hold() -> str:
    """Return the id of the hold that the operator's page has shown. Answers 404 if it is malformed."""
    if not is_hold(hold := flask.request.values.get("hold", "")):
        flask.abort(404, description="There is no such hold.")
    return hold


def _user() -> str:
    basic = flask.request.authorization
    known = flask.request.remote_user or (basic.username if basic is not None else None)
    return known or f"somebody at {flask.request.remote_addr}"


#: Called without arguments in a request. Returns True to let it in, False to answer 403, or a response.
Access = Callable[[], Any]


def refuse_unfit(word: str, access: object) -> None:
    """Raise `ConfigurationError` unless *access*, the argument *word*, can be called as an `Access`."""
    if not callable(access):
        raise ConfigurationError(
            f"The page of locks needs {word}=, a function that returns True for a request that may use it: "
            "locks_blueprint(allowed=lambda: current_user.is_authenticated and current_user.is_admin)."
        )
    if inspect.iscoroutinefunction(access):
        raise ConfigurationError(
            f"{word}= is async, and the page of locks calls plain functions: write 'def'."
        )


def check_access(word: str, access: Access) -> flask.Response | None:
    """Return None if *access* lets the request in, else the response that *access* returns.

    Answers 403 if *access* returns False or None, and raises `ConfigurationError` for any other value.
    """
    said = access()
    if said is True:
        return None
    # Don't test for truth: a redirect to the login, such as Flask-Login's unauthorized(), is true, too.
    if isinstance(said, flask.Response):
        return said
    if said is False or said is None:
        flask.abort(403)
    raise ConfigurationError(
        f"{word}= of the page of locks returned a {type(said).__name__}: write bool(...) around it. "
        "True lets the request in, False is a 403, and a response is the answer."
    )


def refuse_foreign() -> None:
    """Answer 403 unless the request comes from a page of this same site.

    Browsers say in headers from which site a request comes, and a page of another site can't change them. So
    neither a token nor a session is needed.
    """
    site, origin = flask.request.headers.get("Sec-Fetch-Site"), flask.request.headers.get("Origin")
    if site is not None:
        ours = site == "same-origin"
    else:
        # Browsers leave Sec-Fetch-Site out on plain HTTP.
        ours = origin is not None and urlsplit(origin).netloc == flask.request.host
    if not ours:
        flask.abort(
            403,
            description="Nothing was done: the request does not come from this page. Behind a proxy, the "
            "app has to know the host that browsers see: werkzeug.middleware.proxy_fix.ProxyFix.",
        )

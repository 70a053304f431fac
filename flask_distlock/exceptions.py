"""Lock errors as Werkzeug exceptions, so that a site's own error handlers see them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flask import current_app
from werkzeug.exceptions import HTTPException, default_exceptions

from distlock.errors import LockError
from distlock.web.answers import Answer, answer_for, render

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class LockAnswer(HTTPException):
    """The part that all our exceptions share. `answer` has the stable ``code`` and ``retry_after``."""

    answer: Answer

    def get_body(self, environ: WSGIEnvironment | None = None, scope: dict[str, Any] | None = None) -> str:
        return render(self.answer, _accept(environ)).body

    def get_headers(
        self, environ: WSGIEnvironment | None = None, scope: dict[str, Any] | None = None
    ) -> list[tuple[str, str]]:
        return list(render(self.answer, _accept(environ)).headers.items())


def exception_for(error: LockError) -> HTTPException | None:
    """The exception for a request that ended in *error*; None for errors that are the site's own to mend."""
    answer = answer_for(
        error,
        # .get: an app without DistLock has no such key, and the error that says so has to get through.
        contended_status=current_app.config.get("DISTLOCK_CONTENDED_STATUS", 423),
        debug=current_app.debug,
    )
    if answer is None:
        return None
    exception = _class_for(answer.status)(description=answer.detail)
    exception.answer = answer
    exception.__cause__ = error
    return exception


@functools.cache
def _class_for(status: int) -> type[LockAnswer]:
    # Flask finds error handlers by class: a bare HTTPException with a code of 423 would miss those for 423.
    base = default_exceptions[status]
    return type(f"Lock{base.__name__}", (LockAnswer, base), {})


def _accept(environ: WSGIEnvironment | None) -> str:
    return str((environ or {}).get("HTTP_ACCEPT", ""))

"""Lock errors as Django responses."""

from __future__ import annotations

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse

from distlock.errors import LockError
from distlock.web.answers import QUEUE_FULL, Answer, answered, render
from django_distlock.conf import status
from django_distlock.guarding.mistakes import tell


def answer_to(error: LockError, where: str, responds: bool = True) -> Answer | None:
    """The answer to a request to *where* that ended in *error*; None where that is raised.

    *responds*: see `distlock.web.answers.answered`. What an ``on_commit`` hook raises is never answered: the
    answers say that nothing has happened yet, and ask to try again.
    """
    # A handler of the site's own may make an everyday answer of it.
    tell(error, where)
    if _was_committed(error):
        return None
    return answered(error, where, contended_status=status(), debug=settings.DEBUG, responds=responds)


def _was_committed(error: LockError) -> bool:
    hooks = BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is hooks:
            return True
        traceback = traceback.tb_next
    return False


def response_of(answer: Answer, request: HttpRequest) -> HttpResponse:
    """*answer*, as *request* accepts it."""
    rendered = render(answer, request.META.get("HTTP_ACCEPT", ""))
    # Of a text Django looks for the charset, each time.
    response = HttpResponse(rendered.body.encode(), status=rendered.status, headers=rendered.headers)
    if answer.code == QUEUE_FULL:
        # Django would write a line for each, and mail it to ADMINS. How many they were is logged already.
        response._has_been_logged = True  # type: ignore[attr-defined]
    return response

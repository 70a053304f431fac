"""Lock errors as Django responses."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from distlock.errors import LockError
from distlock.web.answers import Answer, answered, render
from django_distlock.conf import status


def answer_to(error: LockError, where: str, responds: bool = True) -> Answer | None:
    """The answer to a request to *where* that ended in *error*; None where that is raised.

    *responds*: see `distlock.web.answers.answered`.
    """
    return answered(error, where, contended_status=status(), debug=settings.DEBUG, responds=responds)


def response_of(answer: Answer, request: HttpRequest) -> HttpResponse:
    """*answer*, as *request* accepts it."""
    rendered = render(answer, request.headers.get("Accept", ""))
    return HttpResponse(rendered.body, status=rendered.status, headers=rendered.headers)

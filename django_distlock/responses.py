"""Lock errors as Django responses."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from distlock.errors import LockError
from distlock.web.answers import answer_for, render
from django_distlock.conf import status


def response_for(error: LockError, request: HttpRequest) -> HttpResponse | None:
    """The response to a request that ended in *error*; None for errors that are the site's own to mend."""
    answer = answer_for(error, contended_status=status(), debug=settings.DEBUG)
    if answer is None:
        return None
    rendered = render(answer, request.headers.get("Accept", ""))
    return HttpResponse(rendered.body, status=rendered.status, headers=rendered.headers)

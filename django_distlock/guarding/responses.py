"""Lock errors as Django responses, and mistakes in the configuration in the log.

Django only mails what a request has met, to ADMINS if there are any.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator

from django.conf import settings
from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse

from distlock.errors import ConfigurationError, LockError
from distlock.web.answers import QUEUE_FULL, Answer, answered, render
from distlock.web.names.sources import where_of
from django_distlock import private
from django_distlock.conf import status

logger = logging.getLogger("distlock")

#: So many mistakes are told apart: their texts may have names that clients choose.
_MOST = 100

_logged: set[str] = set()
_mutex = threading.RLock()


def answer_to(error: LockError, where: str, responds: bool = True) -> Answer | None:
    """The answer to a request to *where* that ended in *error*; None where that is raised.

    *responds*: see `distlock.web.answers.answered`. What an ``on_commit`` hook raises is never answered: the
    answers say that nothing has happened yet, and ask to try again.
    """
    # A handler of the site's own may make an everyday answer of it.
    log_mistake(error, where)
    if private.was_raised_by_commit_hook(error):
        return None
    return answered(error, where, contended_status=status(), debug=settings.DEBUG, responds=responds)


def response_of(answer: Answer, request: HttpRequest) -> HttpResponse:
    """*answer*, as *request* accepts it."""
    rendered = render(answer, request.META.get("HTTP_ACCEPT", ""))
    # Django looks for the charset of each text.
    response = HttpResponse(rendered.body.encode(), status=rendered.status, headers=rendered.headers)
    if answer.code == QUEUE_FULL:
        # Django would write a line for each, and mail it to ADMINS. How many they were is logged already.
        private.leave_unlogged(response)
    return response


def log_mistake(error: BaseException, where: str) -> None:
    """Log *error* once in this process, if a `ConfigurationError` is or caused it. *where*: what met it."""
    mistake = next((one for one in _causes(error) if isinstance(one, ConfigurationError)), None)
    if mistake is not None and _is_new(str(mistake)):
        logger.critical("%s can't be answered until this is mended: %s", where, mistake)


def _is_new(text: str) -> bool:
    # Names that differ in their numbers only come from the same line of code.
    kind = re.sub(r"\d+", "0", text)
    with _mutex:
        if kind in _logged or len(_logged) >= _MOST:
            return False
        _logged.add(kind)
        return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _on_exception(*, request: HttpRequest | None = None, **kwargs: object) -> None:
    error = sys.exc_info()[1]
    if error is not None:
        match = getattr(request, "resolver_match", None)
        path = getattr(request, "path", "A request")
        log_mistake(error, path if match is None else where_of(match.func))


got_request_exception.connect(_on_exception, dispatch_uid="django_distlock")

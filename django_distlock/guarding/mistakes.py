"""Mistakes in the configuration that a request meets: Django only mails them, to ADMINS if there are any."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator

from django.core.signals import got_request_exception
from django.http import HttpRequest

from distlock.errors import ConfigurationError
from distlock.web.names.sources import where_of

logger = logging.getLogger("distlock")

#: So many are told apart: their texts may have names that clients choose.
_MOST = 100

_told: set[str] = set()
_books = threading.RLock()


def tell(error: BaseException, where: str) -> None:
    """Log *error* once in this process, if a `ConfigurationError` is or caused it. *where*: what met it."""
    mistake = next((one for one in _causes(error) if isinstance(one, ConfigurationError)), None)
    if mistake is not None and _is_new(str(mistake)):
        logger.critical("%s can't be answered until this is mended: %s", where, mistake)


def _is_new(text: str) -> bool:
    # Names that differ in their numbers only come from the same line of code.
    kind = re.sub(r"\d+", "0", text)
    with _books:
        if kind in _told or len(_told) >= _MOST:
            return False
        _told.add(kind)
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
        tell(error, getattr(request, "path", "A request") if match is None else where_of(match.func))


got_request_exception.connect(_on_exception, dispatch_uid="django_distlock")

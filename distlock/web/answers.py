"""The answer to a request that ended in a lock error: a problem document (RFC 9457), or a page."""

from __future__ import annotations

import functools
import html
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType

from distlock.errors import (
    BackendUnavailable,
    BatchFailed,
    BodyTooLarge,
    LockError,
    LockLost,
    LockTimeout,
    LostInside,
    OutcomeUnknown,
    TooManyWaiters,
)
from distlock.fence.stamps import OldEpoch
from distlock.web.names.converters import Malformed

logger = logging.getLogger("distlock")

#: The code of the answer to a request that was refused because too many wait already.
QUEUE_FULL = "lock_queue_full"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, with the members that RFC 9457 names."""

    status: int
    code: str
    title: str
    detail: str
    #: After how many seconds to repeat the request, 1 or more; None: the client is not told to.
    retry_after: int | None = None
    #: The detailed error with the lock's name, for debug mode only.
    debug: str | None = None

    def problem(self) -> dict[str, str | int]:
        """Return the members of the problem document."""
        members: dict[str, str | int] = {
            "type": f"urn:distlock:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if self.retry_after is not None:
            members["retry_after"] = self.retry_after
        if self.debug is not None:
            members["debug"] = self.debug
        return members


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer as it is sent."""

    status: int
    body: str
    headers: Mapping[str, str]


#: By error: the status, code, title, detail and `retry_after` of the answer. The first that fits counts.
_ANSWERS: dict[type[LockError], tuple[int, str, str, str, int | None]] = {
    LockTimeout: (
        423,
        "lock_contended",
        "Locked",
        "Somebody else is working on this right now. Try again.",
        1,
    ),
    TooManyWaiters: (
        503,
        QUEUE_FULL,
        "Too many are waiting",
        "Too many requests are waiting for this already. Try again later.",
        2,
    ),
    BackendUnavailable: (
        503,
        "lock_backend_unavailable",
        "Lock service unavailable",
        "The lock service does not answer. Try again later.",
        5,
    ),
    LostInside: (
        500,
        "lock_lost_inside",
        "Lock lost",
        (
            "The lock was lost while the request was being processed. What it did may stand: look before "
            "you send it again."
        ),
        None,
    ),
    LockLost: (
        503,
        "lock_lost",
        "Lock lost",
        "The lock was lost. Whatever was not yet committed has been undone. Try again.",
        1,
    ),
    BatchFailed: (
        503,
        "lock_batch_failed",
        "Rolled back",
        "The transaction of this request and others was rolled back. Nothing is written. Try again.",
        1,
    ),
    OutcomeUnknown: (
        500,
        "lock_outcome_unknown",
        "Outcome unknown",
        "Whether the request was carried out is not known. Look before you send it again.",
        None,
    ),
    Malformed: (
        400,
        "lock_name_invalid",
        HTTPStatus.BAD_REQUEST.phrase,
        "A part of the request that says what to lock is missing or malformed.",
        None,
    ),
    BodyTooLarge: (
        413,
        "lock_body_too_large",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase,
        "The body of the request is too large. Send less.",
        None,
    ),
}

#: The errors that are answered; a `LostInside` is a `LockLost`. The others are bugs of the site.
ANSWERED = tuple(kind for kind in _ANSWERS if kind is not LostInside)


def answer_for(error: LockError, *, contended_status: int, debug: bool) -> Answer | None:
    """Return the answer to a request that ended in *error*; None: it is a bug of the site, so raise it.

    *contended_status*: the status if the lock stayed taken. *debug*: whether the lock's name may be shown.
    """
    for kind, (status, code, title, detail, retry_after) in _ANSWERS.items():
        if isinstance(error, kind):
            if kind is LockTimeout:
                status = contended_status
            elif isinstance(error, TooManyWaiters):
                retry_after = _retry_after(error)
            return Answer(status, code, title, detail, retry_after, str(error) if debug else None)
    return None


def _retry_after(refusal: TooManyWaiters) -> int:
    """Return after how many seconds the present queue may be served, from 1 to 30; 2 if that is unknown."""
    return min(30, max(1, math.ceil(refusal.expected_wait or 2)))


def answered(
    error: LockError, where: str, *, contended_status: int, debug: bool, responds: bool = True
) -> Answer | None:
    """Return `answer_for` a request to *where*, and log it. None: *error* is to be raised.

    *responds*: whether `LockTimeout` is answered, too; not with ``on_contended="raise"``.
    """
    answer = answer_for(error, contended_status=contended_status, debug=debug)
    if answer is None or (isinstance(error, LockTimeout) and not responds):
        return None
    logger.log(log_level(error), "%s answered %d: %s", where, answer.status, error)
    return answer


def log_level(error: LockError) -> int:
    """Return the log level for an *error* that was answered."""
    match error:
        case OldEpoch():
            return logging.CRITICAL  # It does not pass by itself.
        case LockLost() | BatchFailed() | OutcomeUnknown():
            return logging.ERROR
        case BackendUnavailable():
            return logging.WARNING
        case TooManyWaiters():
            return logging.DEBUG  # They come by the thousand. The engine logs how many.
    return logging.INFO


def render(answer: Answer, accept: str) -> Rendered:
    """Return *answer* as a page or a document, for a client that sent *accept* as its ``Accept`` header."""
    return _written(answer, prefers_html(accept))


# Outside of debug mode there are few different answers, and in a rush thousands of requests get the same one.
@functools.lru_cache(maxsize=64)
def _written(answer: Answer, as_page: bool) -> Rendered:
    headers = {"Cache-Control": "no-store", "Vary": "Accept"}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(answer.retry_after)
    if as_page:
        headers["Content-Type"] = "text/html; charset=utf-8"
        return Rendered(answer.status, _page(answer), MappingProxyType(headers))
    headers["Content-Type"] = "application/problem+json"
    return Rendered(answer.status, json.dumps(answer.problem()), MappingProxyType(headers))


@functools.lru_cache(maxsize=64)
def prefers_html(accept: str) -> bool:
    """Return whether *accept* names HTML, and prefers it to JSON. Browsers do that; ``*/*`` does not."""
    page = data = 0.0
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = _quality(parameters)
        if media in {"text/html", "application/xhtml+xml"}:
            page = max(page, quality)
        elif media in {"application/json", "application/problem+json"}:
            data = max(data, quality)
    return page > data


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _page(answer: Answer) -> str:
    title, detail = html.escape(answer.title), html.escape(answer.detail)
    debug = f"\n<pre>{html.escape(answer.debug)}</pre>" if answer.debug is not None else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body>\n<h1>{title}</h1>\n<p>{detail}</p>{debug}\n</body>\n</html>\n"
    )

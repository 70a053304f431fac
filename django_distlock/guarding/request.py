"""Reads values for lock names from Django requests, and makes Django responses from lock errors."""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse, RawPostDataException, UnreadablePostError
from django.http.multipartparser import MultiPartParserError

from distlock.errors import ConfigurationError, LockError
from distlock.web.answers import QUEUE_FULL, Answer, answered, render
from distlock.web.body_before_lock import Stream
from distlock.web.guard_marks import Guarded
from distlock.web.names.bound_names import BoundNames, where_of
from distlock.web.names.converters import Malformed
from django_distlock import private
from django_distlock.conf import status
from django_distlock.private import put_stream, unread_stream


def keep_body(request: HttpRequest, names: BoundNames) -> None:
    """Read the body now if *names* need it: parsers of REST framework before 3.18 consume the stream."""
    if names.needs_body and request.content_type != "multipart/form-data":
        _ = request.body


class _Sent:
    """The stream of a request's body. Raises Django's error if the client disconnects."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise UnreadablePostError(*error.args) from error


class DjangoBody:
    """The body of a Django request, as `distlock.web.body_before_lock.Body`."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        # Like Django, take a body without a length to be empty.
        try:
            self.length = int(request.META.get("CONTENT_LENGTH") or 0)
        except ValueError:
            self.length = 0

    def unread(self) -> Stream | None:
        stream = unread_stream(self._request)
        return None if stream is None else _Sent(stream)

    def put_back(self, content: IO[bytes]) -> None:
        put_stream(self._request, content, self.length)


class DjangoRequest:
    """A Django request, as `distlock.web.names.request.Request`.

    *outer*: REST framework's wrapper around the request, or None.
    """

    def __init__(self, request: HttpRequest, outer: Any = None) -> None:
        self._outer = request if outer is None else outer
        self._request = request
        self._user: Any = None

    async def prepare(self, names: BoundNames) -> DjangoRequest:
        """Load the user if *names* need it, because `user` would block the event loop. Return self."""
        if names.needs_user and self._outer is self._request and hasattr(self._request, "auser"):
            self._user = await self._request.auser()
        return self

    @property
    def method(self) -> str:
        return self._request.method or ""

    @property
    def content_type(self) -> str:
        return str(self._request.META.get("CONTENT_TYPE", ""))

    @property
    def query_string(self) -> bytes:
        text = str(self._request.META.get("QUERY_STRING", ""))
        # WSGI hands the bytes over as Latin-1 text; Django's ASGI handler has decoded them as UTF-8.
        return text.encode("latin-1" if hasattr(self._request, "environ") else "utf-8")

    def body(self) -> bytes:
        self._refuse_odd_length()
        try:
            return self._request.body
        except RawPostDataException:
            raise ConfigurationError(
                "A lock's name takes a value from the body, which something above the lock has read as a "
                "stream: read request.body there instead."
            ) from None

    def query(self, name: str) -> Sequence[str]:
        return self._request.GET.getlist(name)

    def form(self, name: str) -> Sequence[str]:
        self._refuse_odd_length()
        try:
            return self._request.POST.getlist(name)
        except (MultiPartParserError, BadRequest):
            raise Malformed("is missing: the form can't be read") from None

    def _refuse_odd_length(self) -> None:
        """Raise `Malformed` if the length of the body is no number, which Django answers with 500."""
        try:
            int(self._request.META.get("CONTENT_LENGTH") or 0)
        except ValueError:
            raise Malformed("is missing: the Content-Length is no number") from None

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def user(self) -> object:
        user = getattr(self._outer, "user", None) if self._user is None else self._user
        if user is None:
            raise ConfigurationError(
                "<user.pk> in a lock's name needs 'django.contrib.auth.middleware.AuthenticationMiddleware' "
                "in MIDDLEWARE."
            )
        if not user.is_authenticated:
            # REST framework turns its own exception into 401 or 403.
            if self._outer is not self._request:
                from rest_framework.exceptions import NotAuthenticated

                raise NotAuthenticated
            raise PermissionDenied("A lock's name needs a user who is logged in.")
        return user.pk


#: The attribute of a request with the guards that do not lock it, each with a function that returns whether
#: the guard locks an HTTP method.
_EXEMPT = "_distlock_exempt"


@contextmanager
def watching_method(request: object, guarded: Guarded, locks: Callable[[str], bool]) -> Iterator[None]:
    """Raise `ConfigurationError` if the block changes the method of *request* to one that is locked.

    *locks*: returns whether *guarded*, which does not lock the present method, locks another one.
    """
    if not isinstance(request, HttpRequest) or "method" not in vars(request):
        yield
        return
    cls, exempt = type(request), vars(request).setdefault(_EXEMPT, [])
    if not exempt:
        request.__class__ = _watched(cls)  # type: ignore[arg-type]
    exempt.append((guarded, locks))
    try:
        yield
    finally:
        exempt.pop()
        request.__class__ = cls


@functools.cache
def _watched(cls: type[HttpRequest]) -> type[HttpRequest]:
    """Return a subclass of *cls* whose instances check each change of their method."""

    def get(request: HttpRequest) -> Any:
        return vars(request)["method"]

    def change(request: HttpRequest, method: Any) -> None:
        for guarded, locks in vars(request).get(_EXEMPT, ()):
            if isinstance(method, str) and locks(method):
                raise ConfigurationError(
                    f"{guarded.where} was not locked, because the request came as {request.method}, and code "
                    f"below the lock makes it a {method}, which is locked. Change the method above the lock, "
                    'in a middleware, or lock every method with methods=["*"].'
                )
        vars(request)["method"] = method

    attributes = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "method": property(get, change),
    }
    watched: type[HttpRequest] = type(cls.__name__, (cls,), attributes)
    return watched


logger = logging.getLogger("distlock")

#: The most mistakes that are logged and remembered: their texts may contain names that clients choose.
_MOST = 100

_logged: set[str] = set()
_mutex = threading.RLock()


def answer_to(error: LockError, where: str, responds: bool = True) -> Answer | None:
    """Return the answer to a request to *where* that ended in *error*; None if *error* is to be raised.

    *responds*: see `distlock.web.answers.answered`. An error of an ``on_commit`` hook is never answered,
    because most answers say that nothing was done, and ask to try again.
    """
    # Log it even if it is raised: an exception handler of the site may hide it.
    log_mistake(error, where)
    if private.was_raised_by_commit_hook(error):
        return None
    return answered(error, where, contended_status=status(), debug=settings.DEBUG, responds=responds)


def response_of(answer: Answer, request: HttpRequest) -> HttpResponse:
    """Return *answer* as a response of a type that *request* accepts."""
    rendered = render(answer, request.META.get("HTTP_ACCEPT", ""))
    # Encode it: for a str Django would determine the charset.
    response = HttpResponse(rendered.body.encode(), status=rendered.status, headers=rendered.headers)
    if answer.code == QUEUE_FULL:
        # Django would log each refusal and mail it to ADMINS. The engine logs their number instead.
        private.leave_unlogged(response)
    return response


def log_mistake(error: BaseException, where: str) -> None:
    """Log *error* once per process, if it is or was caused by a `ConfigurationError`. *where*: the view."""
    mistake = next((one for one in _causes(error) if isinstance(one, ConfigurationError)), None)
    if mistake is not None and _is_new(str(mistake)):
        logger.critical("%s can't be answered until this is mended: %s", where, mistake)


def _is_new(text: str) -> bool:
    # Texts that differ only in their numbers come from the same line of code.
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

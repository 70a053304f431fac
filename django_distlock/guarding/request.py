"""A Django request, as lock names read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, RawPostDataException, UnreadablePostError
from django.http.multipartparser import MultiPartParserError

from distlock.errors import ConfigurationError
from distlock.web.bodies import Stream
from distlock.web.names.converters import Malformed
from distlock.web.names.sources import BoundNames
from django_distlock.private import put_stream, unread_stream
from django_distlock.private_of_others import django_request


def keep_body(request: HttpRequest, names: BoundNames) -> None:
    """Read the body that *names* need, which parsers of REST framework before 3.18 use up as a stream."""
    if names.needs_body and request.content_type != "multipart/form-data":
        _ = request.body


class _Sent:
    """The stream of a body that the client is sending, with Django's error where it breaks off."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise UnreadablePostError(*error.args) from error


class DjangoBody:
    """A `distlock.web.bodies.Body`. *request*: Django's, or that of REST framework around it."""

    def __init__(self, request: Any) -> None:
        self._request = django_request(request)

    @property
    def length(self) -> int:
        # As Django reads it: a body without a length is none.
        try:
            return int(self._request.META.get("CONTENT_LENGTH") or 0)
        except ValueError:
            return 0

    def unread(self) -> Stream | None:
        stream = unread_stream(self._request)
        return None if stream is None else _Sent(stream)

    def put_back(self, content: IO[bytes]) -> None:
        put_stream(self._request, content, self.length)


class DjangoRequest:
    """A `distlock.web.names.request.Request`. *request*: Django's, or that of REST framework around it."""

    def __init__(self, request: Any) -> None:
        self._outer = request
        self._request = request if isinstance(request, HttpRequest) else django_request(request)
        self._user: Any = None

    async def prepare(self, names: BoundNames) -> DjangoRequest:
        """Load beforehand what *names* need and what may wait: for async views. Gives itself."""
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
        # WSGI hands bytes over as Latin-1; Django's ASGI handler has decoded them.
        return text.encode("latin-1" if hasattr(self._request, "environ") else "utf-8")

    def body(self) -> bytes:
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
        try:
            return self._request.POST.getlist(name)
        except (MultiPartParserError, BadRequest):
            raise Malformed("is missing: the form can't be read") from None

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
            # REST framework knows whether this is 401 or 403.
            if self._outer is not self._request:
                from rest_framework.exceptions import NotAuthenticated

                raise NotAuthenticated
            raise PermissionDenied("A lock's name needs a user who is logged in.")
        return user.pk

"""The middleware applies rules, answers lock errors that views raise, and adds ``Server-Timing``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from distlock.errors import LockError
from distlock.locks.self_deadlock import apart
from distlock.web.names.bound_names import where_of
from django_distlock.conf import warn_without_checks
from django_distlock.guarding.guarded_call import add_server_timing
from django_distlock.guarding.request import answer_to, response_of
from django_distlock.rules import applied, current_plan


class DistlockMiddleware:
    """The middleware for ``DISTLOCK_RULES``, for lock errors that views raise, and for ``Server-Timing``.

    It may stand at any place in ``MIDDLEWARE``. At the start of the server it raises `ConfigurationError` for
    rules that can't be applied.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.async_mode = iscoroutinefunction(get_response)
        if self.async_mode:
            markcoroutinefunction(self)
            # Django would run a sync process_view() in a thread, for each request.
            self.process_view = self._aprocess_view  # type: ignore[assignment,method-assign]
        warn_without_checks()
        current_plan()

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.async_mode:
            return self._acall(request)
        with applied(), apart():
            response: HttpResponseBase = self.get_response(request)
        add_server_timing(request, response)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        with applied(), apart():
            response: HttpResponseBase = await self.get_response(request)
        add_server_timing(request, response)
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: object, kwargs: object
    ) -> None:
        """Raise `ConfigurationError` for a view that the rules should have locked and did not."""
        if (plan := current_plan()) is not None:
            plan.refuse_passed(request, view)

    async def _aprocess_view(
        self, request: HttpRequest, view: Callable[..., Any], args: object, kwargs: object
    ) -> None:
        self.__class__.process_view(self, request, view, args, kwargs)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return a guard's response to a lock error that the view has raised; None if guards don't answer it.

        Django has already rolled the view's transactions back.
        """
        if not isinstance(exception, LockError):
            return None
        match = request.resolver_match
        answer = answer_to(exception, request.path if match is None else where_of(match.func))
        return None if answer is None else response_of(answer, request)

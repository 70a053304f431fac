"""The system check of fences: their databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from asgiref.sync import iscoroutinefunction
from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.urls import get_resolver

from distlock.errors import ConfigurationError
from distlock.web.database_setting import fence_for
from distlock.web.decorator import Guarded, guards_of
from distlock.web.settings import Service, read
from django_distlock.audit import guards_at
from django_distlock.fence import check_database, database_of
from django_distlock.remedies import async_with_fence
from django_distlock.routes import routes
from django_distlock.rules import make_plan


@register(Tags.urls)
def check_fences(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """That each fence names a database that can have one. Connects to nothing."""
    try:
        services = read(getattr(settings, "DISTLOCK", None) or {"default": "memory://"})
    except ConfigurationError:
        return []  # `check_settings` says so.
    found = dict.fromkeys(_problems(services))
    return [Error(problem, id="distlock.E013") for problem in found]


def _problems(services: dict[str, Service]) -> Iterator[str]:
    for alias, service in services.items():
        yield from _problem(f"DISTLOCK[{alias!r}]", service.fence)
    for guarded in _guards():
        told = guarded.told
        if told.alias not in services:
            continue
        try:
            fence = fence_for(services[told.alias], told)
        except ConfigurationError as error:
            yield f"{guarded.where}: {error}"
            continue
        if told.fence is not None:
            yield from _problem(guarded.where, fence)
        if fence and iscoroutinefunction(guarded.function):
            row_is_lock = services[told.alias].scheme == "database"
            yield async_with_fence(guarded, row_is_lock=row_is_lock)


def _problem(where: str, fence: bool | str) -> Iterator[str]:
    try:
        if (using := database_of(fence)) is not None:
            check_database(using)
    except ConfigurationError as error:
        yield f"{where}: {error}"


def _guards() -> Iterator[Guarded]:
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    for route in routes(get_resolver().url_patterns):
        try:
            yield from (found.guarded for found in guards_at(route))
        except ConfigurationError:
            continue  # `check_names` says so.
    if (plan := make_plan()) is not None:
        for view in plan.views.values():
            yield from guards_of(view)

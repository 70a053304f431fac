"""System checks of the settings. They do not connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, register
from django.core.checks import Warning as Caution

from distlock.errors import ConfigurationError, LockError
from distlock.web.bodies import DEFAULTS
from distlock.web.settings.aliases import AliasSettings, read
from distlock.web.settings.clients import make_client, refuse_unusable
from distlock.web.settings.problems import Kind, find_problems, misspelled, shared_with_caches, uncapped
from django_distlock import conf
from django_distlock.conf import redis_of

IDS: dict[Kind, str] = {
    "shape": "distlock.E001",
    "backend": "distlock.E002",
    "key": "distlock.E003",
    "value": "distlock.E004",
}


@register("distlock")
def check_settings(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check ``DISTLOCK`` and the settings beside it. Does not connect."""
    setting = getattr(settings, "DISTLOCK", None)
    problems = [*misspelled(dir(settings)), *([] if setting is None else find_problems(setting))]
    found: list[CheckMessage] = [
        Error(problem.message, hint=problem.hint, id=IDS[problem.kind]) for problem in problems
    ]
    if setting is None:
        return [*found, _not_configured()]
    values: list[Callable[[], object]] = [conf.status, conf.refreshes_user, conf.refreshes_session]
    values += [partial(conf.body_size, name) for name in DEFAULTS]
    for value in values:
        try:
            value()
        except ConfigurationError as error:
            found.append(Error(str(error), id="distlock.E004"))
    return found or list(_check_backends(setting))


@register("distlock", deploy=True)
def check_capacity(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Report, for ``check --deploy``, that the number of waiting requests is unlimited, which is no error."""
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None or any(find_problems(setting)):
        return []
    return [Info(problem.message, hint=problem.hint, id="distlock.I001") for problem in uncapped(setting)]


def _check_backends(setting: object) -> Iterator[CheckMessage]:
    for problem in shared_with_caches(setting):
        yield Caution(problem.message, hint=problem.hint, id="distlock.W007")
    by_alias = read(setting, redis_of)
    for alias in by_alias:
        try:
            one = by_alias[alias]
        except ConfigurationError as error:
            yield Error(str(error), id="distlock.E002")
            continue
        yield from _check_backend(one)
        if not settings.DEBUG and _is_alone(one):
            yield Caution(
                f"DISTLOCK[{alias!r}] uses the {one.scheme} backend, which keeps no other process out.",
                hint="Outside of tests use a lock service that all servers share.",
                id="distlock.W002",
            )


def _check_backend(one: AliasSettings) -> Iterator[CheckMessage]:
    try:
        make_client(one).close()
    except ConfigurationError as error:
        yield Error(str(error), id="distlock.E002")
        return
    try:
        refuse_unusable(one)
    except LockError as error:
        hint = "Found by the user who runs this check: run it as the user who serves the site."
        yield Error(str(error), hint=hint, id="distlock.E014")


def _is_alone(one: AliasSettings) -> bool:
    try:
        return not one.capabilities.several_processes
    except ConfigurationError:
        return False  # `_check_backend` reports it.


def _not_configured() -> CheckMessage:
    hint = (
        'Write DISTLOCK = {"default": {"LOCATION": "redis://localhost:6379/0"}}, or '
        '"file:///var/lib/shop/locks" if there is only one host.'
    )
    if settings.DEBUG:
        return Caution(
            "DISTLOCK is not configured: while DEBUG is on, locks hold on this host only.",
            hint=hint,
            id="distlock.W001",
        )
    return Error("DISTLOCK is not configured.", hint=hint, id="distlock.E001")

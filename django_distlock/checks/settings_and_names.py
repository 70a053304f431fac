"""System checks: what is wrong with the settings, and with the names of locked views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.core.checks import Warning as Caution
from django.urls import get_resolver

from distlock.errors import ConfigurationError, LockError
from distlock.web.decorator import Told, unused
from distlock.web.names.joined import joined
from distlock.web.settings.aliases import AliasSettings, contended_status, read
from distlock.web.settings.clients import make_client, refuse_unusable
from distlock.web.settings.problems import DEFAULT_ALIAS, Kind, find_problems, misspelled, uncapped
from django_distlock.checks.placement import Found, guards_at, misplaced, passed_by, reads_early
from django_distlock.conf import refuse_without_middleware
from django_distlock.rules.applying import make_plan
from django_distlock.rules.routes import Route, misfits, routes

IDS: dict[Kind, str] = {
    "shape": "distlock.E001",
    "backend": "distlock.E002",
    "key": "distlock.E003",
    "value": "distlock.E004",
}


@register("distlock")
def check_settings(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """The shape of ``DISTLOCK``. Connects to nothing."""
    setting = getattr(settings, "DISTLOCK", None)
    problems = [*misspelled(dir(settings)), *([] if setting is None else find_problems(setting))]
    found: list[CheckMessage] = [
        Error(problem.message, hint=problem.hint, id=IDS[problem.kind]) for problem in problems
    ]
    if setting is None:
        return [*found, _not_configured()]
    try:
        contended_status(getattr(settings, "DISTLOCK_CONTENDED_STATUS", 423))
    except ConfigurationError as error:
        found.append(Error(str(error), id="distlock.E004"))
    return found or list(_check_backends(setting))


@register("distlock", deploy=True)
def check_capacity(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """What a rush may take from the other views. For ``check --deploy``: a decision, and no fault."""
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None or any(find_problems(setting)):
        return []
    return [Info(problem.message, hint=problem.hint, id="distlock.I001") for problem in uncapped(setting)]


@register(Tags.urls)
def check_names(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """The guards of locked views: where they stand, and their names against the routes that lead to them."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    aliases = _aliases()
    found: list[CheckMessage] = []
    for route in routes(get_resolver().url_patterns):
        if (problem := unused(route.pattern.callback)) is not None:
            found.append(Error(problem, hint=f"The route is {route.path!r}.", id="distlock.E008"))
        try:
            guards = list(guards_at(route))
        except ConfigurationError as error:
            found.append(Error(str(error), hint=f"The route is {route.path!r}.", id="distlock.E005"))
            continue
        found.extend(_check_aliases(route, guards, aliases))
        found.extend(_check_names(route, guards))
        found.extend(_check_placement(route))
    return found


@register(Tags.urls)
def check_rules(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """What `DistlockMiddleware` refuses when a server starts, and that it is there to do so."""
    found: list[CheckMessage] = []
    try:
        refuse_without_middleware()
    except ConfigurationError as error:
        found.append(Error(str(error), id="distlock.E010"))
    if (plan := make_plan()) is not None:
        found += [Error(str(problem), id="distlock.E009") for problem in plan.problems]
        for told in plan.told():
            found += _check_joined(told)
    return found


def _aliases() -> list[str] | None:
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None:
        return [DEFAULT_ALIAS]
    try:
        return list(read(setting))
    except ConfigurationError:
        return None  # `check_settings` says so.


def _check_aliases(
    route: Route, guards: Sequence[Found], aliases: list[str] | None
) -> Iterator[CheckMessage]:
    for found in guards:
        alias = found.guarded.told.alias
        if aliases is not None and alias not in aliases:
            yield Error(
                f"{found.guarded.where} at the route {route.path!r} has the alias {alias!r}, and DISTLOCK "
                "has not.",
                hint=f"Known are {', '.join(map(repr, aliases))}. Add it to DISTLOCK, or name one of these.",
                id="distlock.E007",
            )


def _check_names(route: Route, guards: Sequence[Found]) -> Iterator[CheckMessage]:
    for found in guards:
        for misfit in misfits(found.guarded, route):
            if misfit.kind == "text":
                yield Error(misfit.message, hint=misfit.hint, id="distlock.E006")
            elif found.direct:
                yield Error(misfit.message, hint=misfit.hint, id="distlock.E005")
            else:
                # A decorator in between may add the argument.
                yield Caution(misfit.message, hint=misfit.hint, id="distlock.W003")
        yield from _check_joined(found.guarded.told)


def _check_joined(told: Told) -> Iterator[CheckMessage]:
    for problem in joined(told.names.templates):
        yield Caution(problem, id="distlock.W005")


def _check_placement(route: Route) -> Iterator[CheckMessage]:
    hint = f"The route is {route.path!r}."
    for problem in misplaced(route):
        yield Error(problem, hint=hint, id="distlock.E011")
    for problem in passed_by(route):
        yield Error(problem, hint=hint, id="distlock.E012")
    for problem in reads_early(route):
        yield Caution(problem, hint=hint, id="distlock.W004")


def _check_backends(setting: object) -> Iterator[CheckMessage]:
    for alias, one in read(setting).items():
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
        return False  # `_check_backend` says so.


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

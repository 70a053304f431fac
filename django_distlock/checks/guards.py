"""System checks of guards and rules: where they stand, and their names against the routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.urls import get_resolver

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, unused
from distlock.web.names.joined import joined
from distlock.web.settings.problems import DEFAULT_ALIAS, by_alias, find_problems
from django_distlock.checks.open_methods import open_methods
from django_distlock.checks.placement import (
    PlacedGuard,
    guards_at,
    logs_in_late,
    misplaced,
    passed_by,
    reads_early,
    runs_before,
)
from django_distlock.conf import refuse_without_middleware
from django_distlock.fresh.session_store import keeps_sessions_in_cookies
from django_distlock.rules.applying import make_plan
from django_distlock.rules.routes import Route, misfits, routes


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
        hint = f"The route is {route.path!r}."
        found.extend(Caution(problem, hint=hint, id="distlock.W010") for problem in logs_in_late(guards))
    return found


@register(Tags.urls)
def check_rules(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check what `DistlockMiddleware` refuses at the start of a server, and that it is installed."""
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


@register(Tags.urls)
def check_sessions(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """A lock of the user serialises the session, but not one that each client keeps and sends by itself."""
    if not getattr(settings, "ROOT_URLCONF", None) or not keeps_sessions_in_cookies():
        return []
    for where, told in _guarded():
        if any(one.place.head == "user" for name in told.names.templates for one in name.placeholders):
            return [
                Caution(
                    f"{where} is locked for each user, but SESSION_ENGINE keeps the session in the client's "
                    "cookie. Requests that wait for the lock have sent the cookie before it, and an old "
                    "cookie can be sent again: nothing that is counted in request.session is exact.",
                    hint="Keep counters in a row of the database, or set SESSION_ENGINE to "
                    "'django.contrib.sessions.backends.db'.",
                    id="distlock.W008",
                )
            ]
    return []


def _guarded() -> Iterator[tuple[str, Told]]:
    """Every guard of a view and every rule, with where it stands."""
    for route in routes(get_resolver().url_patterns):
        # `check_names` says what is wrong with a guard.
        with suppress(ConfigurationError):
            for found in guards_at(route):
                yield found.guarded.where, found.guarded.told
    if (plan := make_plan()) is not None:
        for told in plan.told():
            yield "A route of DISTLOCK_RULES", told


@register(Tags.urls)
def check_methods(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Guards and rules that name methods, where others reach the same code without the lock."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    ruled = {} if (plan := make_plan()) is None else plan.views
    return [
        Caution(problem, hint=f"The route is {route.path!r}.", id="distlock.W009")
        for route in routes(get_resolver().url_patterns)
        for problem in open_methods(ruled.get(route.pattern, route.pattern.callback))
    ]


def _aliases() -> list[str] | None:
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None:
        return [DEFAULT_ALIAS]
    if any(find_problems(setting)):
        return None  # `check_settings` says so.
    return list(by_alias(setting) or ())


def _check_aliases(
    route: Route, guards: Sequence[PlacedGuard], aliases: list[str] | None
) -> Iterator[CheckMessage]:
    for found in guards:
        alias = found.guarded.told.alias
        if aliases is not None and alias not in aliases:
            yield Error(
                f"{found.guarded.where} at the route {route.path!r} names the alias {alias!r}, which "
                "DISTLOCK does not have.",
                hint=f"Known are {', '.join(map(repr, aliases))}. Add it to DISTLOCK, or name one of these.",
                id="distlock.E007",
            )


def _check_names(route: Route, guards: Sequence[PlacedGuard]) -> Iterator[CheckMessage]:
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
    errors = list(misplaced(route))
    for problem in errors:
        yield Error(problem, hint=hint, id="distlock.E011")
    for problem in passed_by(route):
        yield Error(problem, hint=hint, id="distlock.E012")
    for problem in reads_early(route):
        yield Caution(problem, hint=hint, id="distlock.W004")
    # A call that passes the lock by altogether is reported above.
    for problem in () if errors else runs_before(route):
        yield Caution(problem, hint=hint, id="distlock.W011")

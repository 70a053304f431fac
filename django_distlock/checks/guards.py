"""System checks of guards and rules: where they stand, and their names against the routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.urls import get_resolver

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, unused
from distlock.web.names.joined import joined
from distlock.web.settings.problems import DEFAULT_ALIAS, by_alias, find_problems
from django_distlock.checks.placement import PlacedGuard, guards_at, misplaced, passed_by, reads_early
from django_distlock.conf import refuse_without_middleware
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
    for problem in misplaced(route):
        yield Error(problem, hint=hint, id="distlock.E011")
    for problem in passed_by(route):
        yield Error(problem, hint=hint, id="distlock.E012")
    for problem in reads_early(route):
        yield Caution(problem, hint=hint, id="distlock.W004")

"""System checks: what is wrong with the settings, and with the names of locked views."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import SlugConverter, StringConverter, UUIDConverter

from distlock.errors import ConfigurationError
from distlock.web.decorator import guards_of, unused
from distlock.web.services import make_client
from distlock.web.settings import DEFAULT_ALIAS, Kind, contended_status, find_problems, read

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
    if setting is None:
        return [_not_configured()]
    found: list[CheckMessage] = [
        Error(problem.message, hint=problem.hint, id=IDS[problem.kind]) for problem in find_problems(setting)
    ]
    try:
        contended_status(getattr(settings, "DISTLOCK_CONTENDED_STATUS", 423))
    except ConfigurationError as error:
        found.append(Error(str(error), id="distlock.E004"))
    return found or list(_check_services(setting))


@register(Tags.urls)
def check_names(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """The names of locked views against the routes that lead to them."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    aliases = _aliases()
    found: list[CheckMessage] = []
    for route, view, arguments in routes(get_resolver().url_patterns):
        if (problem := unused(view)) is not None:
            found.append(Error(problem, hint=f"The route is {route!r}.", id="distlock.E008"))
        found.extend(_check_aliases(route, view, aliases))
        found.extend(_check_route(route, view, arguments))
    return found


Arguments = Mapping[str, object]


def routes(
    patterns: Sequence[URLPattern | URLResolver], prefix: str = "", arguments: Arguments | None = None
) -> Iterator[tuple[str, Callable[..., Any], Arguments]]:
    """Each route with its view and arguments: name -> converter, or None where that is not known."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        own = {**(arguments or {}), **_arguments(pattern)}
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route, own)
        elif pattern.callback is not None:
            yield route, pattern.callback, own


def _arguments(pattern: URLPattern | URLResolver) -> Arguments:
    given = pattern.default_kwargs if isinstance(pattern, URLResolver) else pattern.default_args
    # The named groups of re_path are text.
    groups = getattr(getattr(pattern.pattern, "regex", None), "groupindex", ())
    text = StringConverter()
    return {**dict.fromkeys(groups, text), **pattern.pattern.converters, **dict.fromkeys(given)}


def _aliases() -> list[str] | None:
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None:
        return [DEFAULT_ALIAS]
    try:
        return list(read(setting))
    except ConfigurationError:
        return None  # `check_settings` says so.


def _check_aliases(route: str, view: Callable[..., Any], aliases: list[str] | None) -> Iterator[CheckMessage]:
    for guarded in guards_of(view):
        alias = guarded.told.alias
        if aliases is not None and alias not in aliases:
            yield Error(
                f"{guarded.where} at the route {route!r} has the alias {alias!r}, and DISTLOCK has not.",
                hint=f"Known are {', '.join(map(repr, aliases))}. Add it to DISTLOCK, or name one of these.",
                id="distlock.E007",
            )


def _check_route(route: str, view: Callable[..., Any], arguments: Arguments) -> Iterator[CheckMessage]:
    for guarded in guards_of(view):
        for template, source in guarded.names.required():
            if source in arguments:
                continue
            message = (
                f"{guarded.where} is locked on {template.text!r}, but the route '{route}' has no {source!r}."
            )
            hint = f"The route has: {', '.join(arguments) or 'none'}."
            if guarded.wrapper is view:
                yield Error(message, hint=hint, id="distlock.E005")
            else:
                # A decorator in between may add the argument.
                yield Caution(message, hint=hint, id="distlock.W003")
        for template, placeholder in itertools.chain.from_iterable(
            ((template, placeholder) for placeholder in template.placeholders)
            for template in guarded.names.templates
        ):
            converter = arguments.get(placeholder.source)
            if placeholder.converter is None and _gives_text(converter):
                slug = isinstance(converter, SlugConverter)
                line = template.text.replace(
                    placeholder.text, f"<{'slug' if slug else 'int'}:{placeholder.source}>"
                )
                yield Error(
                    f"{guarded.where} is locked on {template.text!r}, and the route '{route}' gives text for "
                    f"{placeholder.source!r}: one value could have several locks.",
                    hint=f"Write @distributed_lock({line!r}){'' if slug else _OTHERS}.",
                    id="distlock.E006",
                )


_OTHERS = ", or 'slug:', 'uuid:' or 'str:'"


def _gives_text(converter: object) -> bool:
    # Subclasses convert as they like; SlugConverter and PathConverter don't.
    inherits = getattr(type(converter), "to_python", None) is StringConverter.to_python
    return inherits and not isinstance(converter, UUIDConverter)


def _check_services(setting: object) -> Iterator[CheckMessage]:
    for alias, service in read(setting).items():
        try:
            make_client(service).close()
        except ConfigurationError as error:
            yield Error(str(error), id="distlock.E002")
        if service.scheme in {"memory", "dummy"} and not settings.DEBUG:
            yield Caution(
                f"DISTLOCK[{alias!r}] uses the {service.scheme} backend, which keeps no other process out.",
                hint="Outside of tests use a lock service that all servers share.",
                id="distlock.W002",
            )


def _not_configured() -> CheckMessage:
    hint = (
        'Write DISTLOCK = {"default": {"LOCATION": "redis://localhost:6379/0"}}, or "file:///var/lock/shop" '
        "if there is only one host."
    )
    if settings.DEBUG:
        return Caution(
            "DISTLOCK is not configured: while DEBUG is on, locks hold on this host only.",
            hint=hint,
            id="distlock.W001",
        )
    return Error("DISTLOCK is not configured.", hint=hint, id="distlock.E001")

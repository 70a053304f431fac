"""System checks of guards and rules: placement, names against the routes, and methods that are not locked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.guard_marks import Guarded, chain, guards_of, reached, unused
from distlock.web.guard_options import GuardOptions
from distlock.web.names.templates import ambiguities
from distlock.web.settings.problems import DEFAULT_ALIAS, by_alias, find_problems
from django_distlock.checks import placement
from django_distlock.conf import refuse_without_middleware
from django_distlock.fresh.session import keeps_sessions_in_cookies
from django_distlock.guarding import view_classes
from django_distlock.private import required_methods
from django_distlock.private_of_others import is_api_view
from django_distlock.rules import Route, make_plan, misfits, site_routes


@register(Tags.urls)
def check_names(**kwargs: object) -> list[CheckMessage]:
    """Check the guards of views: their placement, and their names against the arguments of the routes."""
    aliases = _aliases()
    found: list[CheckMessage] = []
    for route in site_routes():
        hint = f"The route is {route.path!r}."
        if (problem := unused(route.view)) is not None:
            found.append(Error(problem, hint=hint, id="distlock.E008"))
        try:
            guards = list(placement.guards_at(route))
        except ConfigurationError as error:
            found.append(Error(str(error), hint=hint, id="distlock.E005"))
            continue
        found.extend(_check_aliases(route, guards, aliases))
        found.extend(_check_names(route, guards))
        found.extend(_check_placement(route, hint))
        found.extend(
            Caution(problem, hint=hint, id="distlock.W010") for problem in placement.logs_in_late(guards)
        )
    return found


@register(Tags.urls)
def check_rules(**kwargs: object) -> list[CheckMessage]:
    """Check the rules as `DistlockMiddleware` does at the start of a server, and that it is installed."""
    found: list[CheckMessage] = []
    try:
        refuse_without_middleware()
    except ConfigurationError as error:
        found.append(Error(str(error), id="distlock.E010"))
    if (plan := make_plan()) is not None:
        found += [Error(str(problem), id="distlock.E009") for problem in plan.problems]
        for options in plan.options():
            found += _check_ambiguities(options)
    return found


@register(Tags.urls)
def check_sessions(**kwargs: object) -> list[CheckMessage]:
    """Warn if a lock is per user, and sessions are in cookies: a client may send an old cookie again."""
    for where, options in _guarded() if keeps_sessions_in_cookies() else ():
        if any(one.place.head == "user" for name in options.names.templates for one in name.placeholders):
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


def _guarded() -> Iterator[tuple[str, GuardOptions]]:
    """Yield the options of each guard and rule, with the text that names it in messages."""
    for route in site_routes():
        # `check_names` reports guards that can never work.
        with suppress(ConfigurationError):
            for found in placement.guards_at(route):
                yield found.guarded.where, found.guarded.options
    if (plan := make_plan()) is not None:
        for options in plan.options():
            yield "A route of DISTLOCK_RULES", options


@register(Tags.urls)
def check_methods(**kwargs: object) -> list[CheckMessage]:
    """Warn about guards and rules that name methods, if other methods reach the same code unlocked."""
    ruled = {} if (plan := make_plan()) is None else plan.views
    return [
        Caution(problem, hint=f"The route is {route.path!r}.", id="distlock.W009")
        for route in site_routes()
        for problem in open_methods(ruled.get(route.pattern, route.view))
    ]


def _aliases() -> list[str] | None:
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None:
        return [DEFAULT_ALIAS]
    if any(find_problems(setting)):
        return None  # `check_settings` reports it.
    return list(by_alias(setting) or ())


def _check_aliases(
    route: Route, guards: Sequence[placement.PlacedGuard], aliases: list[str] | None
) -> Iterator[CheckMessage]:
    for found in guards:
        alias = found.guarded.options.alias
        if aliases is not None and alias not in aliases:
            yield Error(
                f"{found.guarded.where} at the route {route.path!r} names the alias {alias!r}, which "
                "DISTLOCK does not have.",
                hint=f"Known are {', '.join(map(repr, aliases))}. Add it to DISTLOCK, or name one of these.",
                id="distlock.E007",
            )


def _check_names(route: Route, guards: Sequence[placement.PlacedGuard]) -> Iterator[CheckMessage]:
    for found in guards:
        # A decorator above the guard may add the argument.
        missing = (Error, "distlock.E005") if found.direct else (Caution, "distlock.W003")
        for misfit in misfits(found.guarded, route):
            kind, number = (Error, "distlock.E006") if misfit.kind == "text" else missing
            yield kind(misfit.message, hint=misfit.hint, id=number)
        yield from _check_ambiguities(found.guarded.options)


def _check_ambiguities(options: GuardOptions) -> Iterator[CheckMessage]:
    return (Caution(problem, id="distlock.W005") for problem in ambiguities(options.names.templates))


def _check_placement(route: Route, hint: str) -> Iterator[CheckMessage]:
    errors = list(placement.misplaced(route))
    yield from (Error(problem, hint=hint, id="distlock.E011") for problem in errors)
    yield from (Error(problem, hint=hint, id="distlock.E012") for problem in placement.passed_by(route))
    yield from (Caution(problem, hint=hint, id="distlock.W004") for problem in placement.reads_early(route))
    # A misplaced guard has to move anyway, so don't warn about code that runs before its lock.
    if not errors:
        yield from (
            Caution(problem, hint=hint, id="distlock.W011") for problem in placement.runs_before(route)
        )


#: The methods that write, in generic views of Django and REST framework.
_WRITING = ("create", "update", "destroy", "form_valid")


def open_methods(view: Any) -> Iterator[str]:
    """Yield a warning if guards around *view* name methods, and other methods reach the same code unlocked.

    GET is left out, because by convention it only reads.
    """
    cls = view_classes.view_class(view)
    guards = guards_of(view)
    if cls is not None:
        guards += (view_classes.on_method(guarded, cls, "dispatch") for guarded in guards_of(cls.dispatch))
    guards = [guarded for guarded in guards if guarded.options.mode != READ]
    named = [guarded for guarded in guards if guarded.options.methods is not None]
    locked: set[str] = set()
    for guarded in guards:
        if not isinstance(guarded.methods, frozenset):
            return  # This guard locks all methods that may write.
        locked |= guarded.methods
    if not named:
        return
    if cls is None or is_api_view(cls):
        yield from _of_function(view, cls, named[0], locked)
    elif any(not _calls_the_frameworks(cls, base) for base in view_classes.overriding(cls, ["dispatch"])):
        yield from _of_function(view, None, named[0], locked)
    else:
        yield from _of_class(view, cls, named[0], locked)


def _of_function(view: Any, cls: Any, guarded: Guarded, locked: set[str]) -> Iterator[str]:
    taken = _taken(view, cls)
    others = None if taken is None else taken - locked - {"GET"}
    if others is not None and not others:
        return
    shown = "any other method" if others is None else ", ".join(sorted(others))
    # Let the view still accept GET, whether the guard locks it or not.
    required = json.dumps(sorted((locked - {"HEAD"} if "GET" not in locked else locked) | {"GET"}))
    out = 'name every method, methods=["*"]' if "GET" in locked else "leave methods out"
    yield (
        f"{guarded.where} is locked for {', '.join(sorted(locked))}, and takes {shown} without the lock: a "
        f"client may send what it likes. Write @require_http_methods({required}) above the guard, or {out}."
    )


def _of_class(view: Any, cls: Any, guarded: Guarded, locked: set[str]) -> Iterator[str]:
    usual = view_classes.usual_methods_of(view)
    names = {method: name for name, methods in view_classes.answering(view).items() for method in methods}
    theirs = [names[method] for method in sorted(locked & names.keys())]
    writes = [*theirs, *(one for one in _WRITING if any(one in reached(cls, name) for name in theirs))]
    for method in sorted(names.keys() - locked):
        if method not in usual:
            continue
        ours = reached(cls, names[method])
        common = [one for one in writes if one in ours] or _alias(cls, names, method, locked)
        if common:
            yield (
                f"{names[method]}() of {cls.__module__}.{cls.__qualname__} answers {method} by "
                f"{common[0]}(), which {guarded.where} locks for {', '.join(sorted(locked))} only: {method} "
                f"runs it without the lock. Leave methods out, to lock every handler but get."
            )


def _alias(cls: Any, names: Mapping[str, str], method: str, locked: Iterable[str]) -> list[str]:
    """Return the names of the locked handlers that are the same function as the handler of *method*."""
    function = getattr(cls, names[method])
    return [names[one] for one in locked if one in names and getattr(cls, names[one]) is function]


def _taken(view: Any, cls: Any) -> frozenset[str] | None:
    """Return the HTTP methods of requests that reach the code of *view*; None: all."""
    taken: frozenset[str] | None = None
    if cls is not None:
        usual = view_classes.usual_methods_of(view)
        taken = frozenset(method for method in view_classes.methods_of(view) or () if method in usual)
    for one in chain(view):
        required = required_methods(one)
        if required is not None:
            taken = required if taken is None else taken & required
    return taken


def _calls_the_frameworks(cls: Any, base: type) -> bool:
    """Return whether ``dispatch()`` of *base*, in the MRO of *cls*, calls the framework's."""
    later = cls.__mro__[cls.__mro__.index(base) + 1 :]
    return view_classes.calls_super(vars(base)["dispatch"], "dispatch", later)

"""Applies ``DISTLOCK_RULES``, which lock views at some of the site's routes without a change to their code.

While a request passes through `DistlockMiddleware`, a rule replaces the view in the match of its URL pattern.
So whatever Django and other middlewares do before the view, such as CSRF checks and the login, comes before
the lock. URL patterns keep their view, so `reverse`, and code that runs outside the middleware, see the
original one. A rule that can't lock would leave its view unlocked, so it is an error before any request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver
from django.urls.converters import SlugConverter, StringConverter

from distlock.errors import ConfigurationError
from distlock.web.guard_marks import Guarded, chain, guards_of
from distlock.web.guard_options import ALL_BUT_GET, EVERY_METHOD, AllBut, GuardOptions, Methods, overlap
from distlock.web.guard_stack import stack_with
from distlock.web.names.bound_names import Names
from distlock.web.names.templates import Template
from distlock.web.rules import Rule, overlaps, passes_by, read_rules, unknown_route
from django_distlock import private
from django_distlock.conf import clients
from django_distlock.guarding.atomic_requests import OptOuts
from django_distlock.guarding.call_context import async_in_transaction
from django_distlock.guarding.guarded_call import BEHIND_RULE
from django_distlock.guarding.view_classes import is_framework, methods_of, usual_methods_of, view_class
from django_distlock.guarding.views import guard_view

Views = Mapping[URLPattern, Callable[..., Any]]

_NOTHING: Views = MappingProxyType({})

#: By URL pattern: the guarded view that replaces the pattern's own one during the running request.
_views: ContextVar[Views] = ContextVar("distlock_rules", default=_NOTHING)


class Plan:
    """The rules of *setting*, applied to the URLconf of *resolver*.

    `problems` are the mistakes in the rules. If there are any, `check` raises, so no request is served.
    """

    def __init__(self, setting: object, resolver: URLResolver) -> None:
        self.setting = setting
        self.resolver = resolver
        self.views: dict[URLPattern, Callable[..., Any]] = {}
        self.problems: list[ConfigurationError] = []
        self._rules: dict[str, list[Rule]] = {}
        self._wrapped: set[int] = set()
        try:
            for rule in read_rules(setting):
                self._rules.setdefault(rule.route, []).append(rule)
        except ConfigurationError as error:
            self.problems.append(error)
            return
        found = list(routes(resolver.url_patterns))
        self.problems.extend(find_problems(self._rules, found))
        if not self.problems:
            self._wrap(found)
        self._wrapped.update(map(id, self.views.values()))

    def check(self) -> None:
        """Raise the first of `problems`, if there are any."""
        for problem in self.problems:
            raise problem

    def options(self) -> Iterator[GuardOptions]:
        """Yield the guard options of each rule."""
        for rules in self._rules.values():
            for rule in rules:
                yield rule.options

    def refuse_passed(self, request: HttpRequest, view: Callable[..., Any]) -> None:
        """Raise `ConfigurationError` if the route of *request* has a rule that does not guard *view*."""
        match = request.resolver_match
        if match is None or match.view_name not in self._rules or id(view) in self._wrapped:
            return
        urlconf = getattr(request, "urlconf", settings.ROOT_URLCONF)
        raise ConfigurationError(
            f"DISTLOCK_RULES lock {match.view_name!r}, and {request.path} was routed there by {urlconf!r}, "
            f"which they do not reach: rules are for {settings.ROOT_URLCONF!r}, as it is when the server "
            "starts. Write @distributed_lock on the view instead."
        )

    def _wrap(self, found: Sequence[Route]) -> None:
        for route in found:
            rules = self._rules.get(route.name or "")
            if rules is None or route.pattern in self.views:
                continue
            view = behind = route.view
            # The first of several rules is the outermost.
            for rule in reversed(rules):
                try:
                    view = guard_view(view, rule.options, methods=ALL_BUT_GET, when=rule.when)
                except ConfigurationError as error:
                    self.problems.append(ConfigurationError(f"DISTLOCK_RULES, {rule}: {error}"))
                    continue
                setattr(view, BEHIND_RULE, behind)
            self.views[route.pattern] = view
            private.resolve_through(route.pattern, _apply)


@contextmanager
def applied() -> Iterator[None]:
    """Apply the rules to the views of URLs that are resolved in the block."""
    plan = current_plan()
    before = _views.set(_NOTHING if plan is None else plan.views)
    try:
        yield
    finally:
        _views.reset(before)


def make_plan() -> Plan | None:
    """Return a new plan of the settings, or None if they have no rules."""
    setting = getattr(settings, "DISTLOCK_RULES", None)
    return Plan(setting, get_resolver()) if setting else None


def _apply(pattern: URLPattern, match: ResolverMatch) -> None:
    """Put the guarded view of *pattern* into *match*. The pattern's own callback stays, for `reverse`."""
    if (view := _views.get().get(pattern)) is not None:
        match.func = view


_mutex = threading.Lock()
_plan: Plan | None = None


def current_plan() -> Plan | None:
    """Return the plan of the current settings, cached until they change; None if they have no rules.

    Raises `ConfigurationError` if a rule can't be applied.
    """
    global _plan
    setting = getattr(settings, "DISTLOCK_RULES", None)
    if not setting:
        return None
    plan, resolver = _plan, get_resolver()
    if plan is None or plan.setting is not setting or plan.resolver is not resolver:
        with _mutex:
            plan = _plan
            if plan is None or plan.setting is not setting or plan.resolver is not resolver:
                plan = _plan = Plan(setting, resolver)
    plan.check()
    return plan


def _forget(*, setting: str, **kwargs: object) -> None:
    global _plan
    if setting in {"DISTLOCK", "DATABASES"}:
        # The plan depends on these settings. `current_plan` itself notices other rules and routes.
        _plan = None


setting_changed.connect(_forget, dispatch_uid="django_distlock.rules")


#: The converter of each argument, by name; None if it is unknown.
Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Route:
    """One URL pattern at one place of the URLconf. A pattern that is included twice has two routes."""

    pattern: URLPattern
    #: The name for `reverse`, with namespaces: ``shop:reduce-stock``. None: it has no name.
    name: str | None
    #: The path as the URLconf writes it, for messages.
    path: str
    #: The view's arguments besides the request, by name.
    arguments: Arguments
    #: Whether the view gets the groups of a regular expression as positional arguments, and none by name.
    unnamed: bool = False

    @property
    def view(self) -> Callable[..., Any]:
        return self.pattern.callback

    @property
    def cls(self) -> Any:
        """The view class, or None if ``as_view()`` did not make the view."""
        return view_class(self.view)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A mistake in the name of a guard at a route, and its remedy."""

    #: "missing": the route lacks an argument. "text": it passes the argument as text, so that one value could
    #: have several spellings, and so several locks.
    kind: Literal["missing", "text"]
    message: str
    hint: str


def routes(
    patterns: Sequence[URLPattern | URLResolver],
    prefix: str = "",
    arguments: Arguments | None = None,
    namespaces: tuple[str, ...] = (),
    unnamed: bool = False,
) -> Iterator[Route]:
    """Yield the routes of *patterns* and of what they include."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        own = {**(arguments or {}), **_arguments(pattern)}
        groups = unnamed or _has_groups(pattern)
        if isinstance(pattern, URLResolver):
            inside = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from routes(pattern.url_patterns, path, own, inside, groups)
        elif pattern.callback is not None:
            name = ":".join((*namespaces, pattern.name)) if pattern.name else None
            yield Route(pattern, name, path, own, unnamed=groups and not own)


def site_routes() -> list[Route]:
    """Return the routes of the site; [] if the settings name no URLconf."""
    return list(routes(get_resolver().url_patterns)) if getattr(settings, "ROOT_URLCONF", None) else []


def misfits(guarded: Guarded, route: Route, written: str = "@distributed_lock({})") -> Iterator[Misfit]:
    """Yield the mistakes in the names of *guarded* at *route*.

    *written*: the line that the remedy names, with ``{}`` for the name.
    """
    for template, source in guarded.names.required():
        if source not in route.arguments and not route.unnamed:
            yield Misfit(
                "missing",
                f"{guarded.where} is locked on {template.text!r}, but the route '{route.path}' has no "
                f"{source!r}.",
                f"The route has: {', '.join(route.arguments) or 'none'}.{_elsewhere(route)}",
            )
    for template in guarded.names.templates:
        for placeholder in template.placeholders:
            converter = route.arguments.get(placeholder.source)
            if placeholder.converter is None and _gives_text(converter):
                slug = isinstance(converter, SlugConverter)
                line = template.text.replace(
                    placeholder.text, f"<{'slug' if slug else 'int'}:{placeholder.source}>"
                )
                others = "" if slug else ", or 'slug:', 'uuid:' or 'str:'"
                yield Misfit(
                    "text",
                    f"{guarded.where} is locked on {template.text!r}, and the route '{route.path}' gives "
                    f"text for {placeholder.source!r}: one value could have several locks.",
                    f"Write {written.format(repr(line))}{others}.",
                )


def _elsewhere(route: Route) -> str:
    """Return what to add to the remedy if *route* is of a view set: its other routes may have the argument.

    Return '' for any other view.
    """
    if not hasattr(route.view, "actions"):
        return ""
    return (
        " Of a view set lock the routes that have it: write the decorator on its methods, "
        'or a rule, such as {"route": "product-detail", "lock": "product_<int:pk>"}.'
    )


def _arguments(pattern: URLPattern | URLResolver) -> Arguments:
    given = pattern.default_kwargs if isinstance(pattern, URLResolver) else pattern.default_args
    # Named groups of re_path() are passed as text.
    groups = getattr(getattr(pattern.pattern, "regex", None), "groupindex", ())
    text = StringConverter()
    return {**dict.fromkeys(groups, text), **pattern.pattern.converters, **dict.fromkeys(given)}


def _has_groups(pattern: URLPattern | URLResolver) -> bool:
    regex = getattr(pattern.pattern, "regex", None)
    return regex is not None and regex.groups > 0


def _gives_text(converter: object) -> bool:
    # SlugConverter and PathConverter inherit to_python(). Subclasses with their own may convert to any type.
    return getattr(type(converter), "to_python", None) is StringConverter.to_python


View = Callable[..., Any]


def find_problems(
    rules: Mapping[str, Sequence[Rule]], found: Sequence[Route]
) -> Iterator[ConfigurationError]:
    """Yield the mistakes in *rules*, a mapping of route names to rules. *found*: the routes of the site."""
    by_name: dict[str, list[Route]] = {}
    for route in found:
        if route.name:
            by_name.setdefault(route.name, []).append(route)
    for name, here in rules.items():
        if name not in by_name:
            yield unknown_route(here[0], by_name)
            continue
        yield from overlaps(here)
        for rule in here:
            for problem in _of_rule(rule, by_name[name]):
                yield ConfigurationError(f"DISTLOCK_RULES, {rule}: {problem}")
    yield from _shared_patterns(rules, found)
    yield from _other_routes(rules, by_name, found)


def _other_routes(
    rules: Mapping[str, Sequence[Rule]], by_name: Mapping[str, Sequence[Route]], found: Sequence[Route]
) -> Iterator[ConfigurationError]:
    """Yield an error for each unlocked route whose view is locked by the rule of another route."""
    patterns = {route.pattern for name in rules for route in by_name.get(name, ())}
    for rule in (one for here in rules.values() for one in here if not one.only_this_route):
        views = [route.view for route in by_name.get(rule.route, ())]
        ruled = {served for view in views for served in _served(view, rule)}
        guards = {guard for view in views for guard in guards_of(view)}
        for route in found:
            view = route.view
            if route.pattern in patterns or ruled.isdisjoint(_served(view, rule)):
                continue
            if not guards.issuperset(guards_of(view)):
                continue  # The view has a guard of its own at this route.
            if route.name:
                line = f'{{"route": "{route.name}", …}}'
            else:
                line = f"after you have given it a name: path({route.path!r}, …, name=…)"
            yield passes_by(rule, f"the route {route.path!r} leads to the same view", line)


def _served(view: View, rule: Rule) -> Iterator[tuple[object, str]]:
    """Yield what *rule* locks of *view*: its class or innermost function, and the action or ''.

    Yields nothing for code of the frameworks: a generic view serves many routes with different arguments.
    """
    cls = view_class(view)
    innermost = cls or list(chain(view))[-1]
    if is_framework(getattr(innermost, "__module__", None) or ""):
        return
    actions = getattr(view, "actions", None)
    if actions is None:
        yield innermost, ""
        return
    for method, action in actions.items():
        if method.upper() in rule.methods:
            yield innermost, action


def _of_rule(rule: Rule, routes: Sequence[Route]) -> Iterator[str]:
    try:
        clients.settings(rule.options.alias)
    except ConfigurationError as error:
        yield str(error)
    yield from _methods_not_taken(rule, [route.view for route in routes])
    for route in routes:
        view = route.view
        try:
            guarded = Guarded(view, rule.options, methods=ALL_BUT_GET)
        except ConfigurationError as error:
            yield str(error)
            continue
        for misfit in misfits(guarded, route, written='"lock": {}'):
            yield f"{misfit.message} {misfit.hint}"
        if iscoroutinefunction(view):
            yield from async_in_transaction(guarded, _opted_out(view), view_class(view) is not None)
        yield from _names_below(guarded, view)


def _methods_not_taken(rule: Rule, views: Sequence[View]) -> Iterator[str]:
    taken: set[str] = set()
    locked = False
    for view in views:
        methods = methods_of(view)
        if methods is None:
            return  # The methods of this view are unknown.
        taken |= methods
        usual: Methods = usual_methods_of(view)
        locked = locked or not (rule.options.locked_methods(usual) or usual).isdisjoint(frozenset(methods))
    options = rule.options.methods
    useless = frozenset() if options is None or isinstance(options, AllBut) else options - taken - {"HEAD"}
    if useless or not locked:
        never = f"{', '.join(sorted(useless))} would never be locked" if useless else "it would never lock"
        named = taken - {"HEAD", "OPTIONS"}
        if options is not None and named != {"GET"}:
            named = set()
        line = f'write "methods": {sorted(named)}' if named else 'leave "methods" out'
        yield (
            f"the view takes only {', '.join(sorted(taken))}, so that {never}: {line}, or leave the rule out."
        )


def _names_below(rule: Guarded, view: View) -> Iterator[str]:
    """Yield the errors for decorators that lock other names than *rule*, inside its transaction."""
    for below in refused_below(rule, guards_of(view), view, stack_with(rule, view)):
        if below.options.alias != rule.options.alias:
            yield (
                f"{below.where} has {below.options}, and under ATOMIC_REQUESTS its lock is taken inside the "
                "transaction of the rule. Write the same methods in both, and the decorator as the outermost "
                "of the view; or write both as decorators, and no rule."
            )
            continue
        both = rule.options.names, below.options.names
        spelled = [source.text for names in both for source in names.templates]
        yield (
            f"{below.where} has {below.options} already, and under ATOMIC_REQUESTS no other lock can be "
            f'taken inside the rule\'s: name all in one place, "lock": {list(dict.fromkeys(spelled))}.'
        )


def refused_below(
    outer: Guarded, inner: Iterable[Guarded], view: View, stacked: Guarded | None
) -> Iterator[Guarded]:
    """Yield those guards of *inner* that lock further names inside the transaction of *outer*.

    It yields none without ``ATOMIC_REQUESTS``. Names that callables make can't be compared, so guards with
    such names are left out.

    *stacked*: the guard directly below *outer* that may lock further names, because its lock is also taken
    before the transaction: see `distlock.web.guard_stack`. None: there is none.
    """
    names = _spelled(outer.options.names)
    if names is None or not _opted_out(view).atomic_requests():
        return
    for below in inner:
        if below is stacked:
            stacked = below.below
            continue
        both = overlap(below.methods or EVERY_METHOD, outer.methods or EVERY_METHOD)
        if not both or both == frozenset({"HEAD"}):
            continue
        others = _spelled(below.options.names)
        if others is not None and (below.options.alias != outer.options.alias or not others <= names):
            yield below


def _spelled(names: Names) -> set[tuple[str, ...]] | None:
    """Return the templates of *names* without their converters; None if callables make some of the names."""
    if len(names.templates) < len(names.sources):
        return None
    return {_parts(template) for template in names.templates}


def _parts(template: Template) -> tuple[str, ...]:
    return tuple(part if isinstance(part, str) else f"<{part.source}>" for part in template.parts)


def _opted_out(view: View) -> OptOuts:
    return OptOuts(private.opted_out(view))


def _shared_patterns(
    rules: Mapping[str, Sequence[Rule]], found: Sequence[Route]
) -> Iterator[ConfigurationError]:
    """Yield the errors for URL patterns that are included at several places under different rules."""
    first: dict[URLPattern, Route] = {}
    for route in found:
        other = first.setdefault(route.pattern, route)
        if _written(rules, route) != _written(rules, other):
            yield ConfigurationError(
                f"DISTLOCK_RULES lock only one of {other.name!r} and {route.name!r}, or each in its own way, "
                "and they are one URL pattern, included twice: what one locks the other would not. Write the "
                "same rule for both."
            )


def _written(rules: Mapping[str, Sequence[Rule]], route: Route) -> list[tuple[str, object]]:
    return [(str(rule.options), rule.when) for rule in rules.get(route.name or "", ())]

"""``DISTLOCK_RULES``: which views are locked without a change to them.

A rule replaces the view in the match of its URL pattern, while a request passes through `DistlockMiddleware`.
So everything that Django and other middlewares do with a view, CSRF and login first of all, is done before
the lock is asked for; and nothing is left behind for handlers without the middleware, or for `reverse`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told
from distlock.web.guard_options import ALL_BUT_GET
from distlock.web.rules import Rule, read_rules
from django_distlock import private
from django_distlock.guarding.observers import BEHIND_RULE
from django_distlock.guarding.views import guard_view
from django_distlock.rules.routes import Route, find_problems, routes

Views = Mapping[URLPattern, Callable[..., Any]]

_NOTHING: Views = MappingProxyType({})

#: The rules' results for the views that the running request may be for.
_views: ContextVar[Views] = ContextVar("distlock_rules", default=_NOTHING)


class Plan:
    """The result of *setting* on the URLconf of *resolver*.

    *problems*: all that has to be mended first; while there are any, no view is locked and none may run.
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
        """Raise the first problem."""
        for problem in self.problems:
            raise problem

    def told(self) -> Iterator[Told]:
        """Yield the guard options of each rule."""
        for rules in self._rules.values():
            for rule in rules:
                yield rule.told

    def refuse_passed(self, request: HttpRequest, view: Callable[..., Any]) -> None:
        """Raise `ConfigurationError` if *view* answers for a route with rules, and they were passed by."""
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
            view = behind = route.pattern.callback
            # The first of several rules is the outermost.
            for rule in reversed(rules):
                try:
                    view = guard_view(view, rule.told, methods=ALL_BUT_GET, when=rule.when)
                except ConfigurationError as error:
                    self.problems.append(ConfigurationError(f"DISTLOCK_RULES, {rule}: {error}"))
                    continue
                setattr(view, BEHIND_RULE, behind)
            self.views[route.pattern] = view
            private.resolve_through(route.pattern, _apply)


@contextmanager
def applied() -> Iterator[None]:
    """Inside, the rules apply to the views that URLs are resolved to."""
    plan = current_plan()
    before = _views.set(_NOTHING if plan is None else plan.views)
    try:
        yield
    finally:
        _views.reset(before)


def make_plan() -> Plan | None:
    """Return the result of the settings, or None without rules."""
    setting = getattr(settings, "DISTLOCK_RULES", None)
    return Plan(setting, get_resolver()) if setting else None


def _apply(pattern: URLPattern, match: ResolverMatch) -> None:
    """Let `_views` decide what *match* calls. `reverse` looks at the callback of *pattern*, which stays."""
    if (view := _views.get().get(pattern)) is not None:
        match.func = view


_mutex = threading.Lock()
_plan: Plan | None = None


def current_plan() -> Plan | None:
    """The plan of the settings as they are, made when they were last changed; None where there are no rules.

    Raises `ConfigurationError` for what can't be locked.
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
        # They decide what can be locked. Of rules and routes it is seen that they have changed.
        _plan = None


setting_changed.connect(_forget, dispatch_uid="django_distlock.rules.applying")

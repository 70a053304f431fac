"""Applies ``DISTLOCK_RULES``, which lock views without a change to their code.

While a request passes through `DistlockMiddleware`, a rule replaces the view in the match of its URL pattern.
So whatever Django and other middlewares do before the view, such as CSRF checks and the login, comes before
the lock. URL patterns themselves do not change, so `reverse`, and code without the middleware, see the
original view.
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

#: The guarded views that replace those of the running request's URL patterns.
_views: ContextVar[Views] = ContextVar("distlock_rules", default=_NOTHING)


class Plan:
    """The rules of *setting*, applied to the URLconf of *resolver*.

    *problems*: the mistakes in the rules. If there are any, no view is locked and none may run.
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
        """Raise `ConfigurationError` if a rule is for the route of *request*, and *view* is not guarded."""
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


setting_changed.connect(_forget, dispatch_uid="django_distlock.rules.applying")

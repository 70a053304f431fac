"""System checks of fences: their databases, and the fence table there."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from asgiref.sync import iscoroutinefunction
from django.apps.config import AppConfig
from django.conf import settings
from django.core import mail
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.core.signals import request_started
from django.db import connections
from django.urls import get_resolver

from distlock.errors import ConfigurationError
from distlock.fence.row import TABLE
from distlock.fence.statements import refuse_shared_rows
from distlock.terms import READ
from distlock.web.decorator import Guarded, guards_of
from distlock.web.guard_options import one_database
from distlock.web.settings.aliases import AliasSettings, read
from distlock.web.settings.clients import fence_for
from django_distlock.checks.placement import guards_at
from django_distlock.conf import redis_of
from django_distlock.guarding.advice import async_with_fence
from django_distlock.guarding.fence import check_database, database_of, make_table
from django_distlock.guarding.transactions import EveryAlias, SyncTransactions
from django_distlock.private import opted_out
from django_distlock.rules.applying import make_plan
from django_distlock.rules.routes import routes

logger = logging.getLogger("distlock")

_FIRST_REQUEST = "django_distlock.checks.fences"
_THIS_HOST = frozenset({"", "localhost", "127.0.0.1", "::1"})


@register(Tags.urls)
def check_fences(*, app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check that each fence names a database that can have one. Does not connect."""
    found = dict.fromkeys(_problems(_settings()))
    return [Error(problem, id="distlock.E013") for problem in found]


@register(Tags.database)
def check_tables(
    *,
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: object,
) -> list[CheckMessage]:
    """Check that each of *databases* has the fence table, for ``check --database default``."""
    fenced = set(_databases(_settings())) if databases else set()
    return [
        _no_table(using)
        for using in databases or ()
        if using in fenced and TABLE not in connections[using].introspection.table_names()
    ]


@register(Tags.urls)
def check_tables_at_hand(
    *,
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: object,
) -> list[CheckMessage]:
    """Check for the fence table in databases that answer at once, if ``check`` names no databases."""
    at_hand = [] if databases else [using for using in set(_databases(_settings())) if _is_at_hand(using)]
    return [_no_table(using) for using in sorted(at_hand) if _lacks_table(using)]


def tell_missing_tables(**kwargs: object) -> None:
    """Log the databases that lack the fence table. The first request of a process calls this.

    No connection may be opened earlier, because a server may fork after it has loaded the site. Test runs are
    left out, because tests make their own tables.
    """
    request_started.disconnect(dispatch_uid=_FIRST_REQUEST)
    if hasattr(mail, "outbox"):
        return
    for using in sorted(set(_databases(_settings()))):
        if _lacks_table(using):
            logger.critical("%s %s", _no_table(using).msg, _no_table(using).hint)


def look_at_first_request() -> None:
    """Let the first request call `tell_missing_tables`."""
    request_started.connect(tell_missing_tables, dispatch_uid=_FIRST_REQUEST)


def _is_at_hand(using: str) -> bool:
    """Return whether the database *using* answers or refuses a query at once."""
    connection = connections[using]
    if connection.vendor == "sqlite":
        return os.path.exists(str(connection.settings_dict["NAME"]))
    host = str(connection.settings_dict["HOST"])
    return connection.connection is not None or host in _THIS_HOST or host.startswith("/")


def _lacks_table(using: str) -> bool:
    """Return whether the fence table is missing. False if the database can't be asked."""
    try:
        return TABLE not in connections[using].introspection.table_names()
    except Exception:
        return False  # The database is down, or a test forbids queries: a view's first query will raise.


def _no_table(using: str) -> CheckMessage:
    # This is a warning: an error would also stop the 'migrate' that creates the table.
    return Caution(
        f"The table {TABLE}, which locks of this site need, is missing in the database {using!r}.",
        hint=make_table(using),
        id="distlock.W006",
    )


def _settings() -> dict[str, AliasSettings]:
    found: dict[str, AliasSettings] = {}
    # `check_settings` reports the error.
    with suppress(ConfigurationError):
        by_alias = read(getattr(settings, "DISTLOCK", None) or {"default": "memory://"}, redis_of)
        for alias in by_alias:
            with suppress(ConfigurationError):
                found[alias] = by_alias[alias]
    return found


def _databases(by_alias: dict[str, AliasSettings]) -> Iterator[str]:
    """Yield the databases that need the fence table, for fences or for locks that are rows."""
    fences = [one.fence for one in by_alias.values()]
    fences += [guarded.told.fence for guarded in _guards() if guarded.told.fence is not None]
    for fence in fences:
        try:
            using = database_of(fence)
        except ConfigurationError:
            continue  # `check_fences` reports it.
        if using is not None:
            yield using


def _problems(by_alias: dict[str, AliasSettings]) -> Iterator[str]:
    for alias, one in by_alias.items():
        yield from _problem(f"DISTLOCK[{alias!r}]", one.fence)
    for guarded in _guards():
        told = guarded.told
        if told.alias not in by_alias:
            continue
        try:
            fence = fence_for(by_alias[told.alias], told)
        except ConfigurationError as error:
            yield f"{guarded.where}: {error}"
            continue
        if told.fence is not None:
            yield from _problem(guarded.where, fence)
        if told.mode == READ and by_alias[told.alias].row_is_lock:
            yield from _not_shared(guarded, fence)
        if told.batch is not None:
            yield from _not_one_database(guarded, fence)
        if fence and iscoroutinefunction(guarded.function):
            row_is_lock = by_alias[told.alias].row_is_lock
            yield async_with_fence(guarded, row_is_lock=row_is_lock)


def _not_shared(guarded: Guarded, fence: bool | str) -> Iterator[str]:
    using = None
    # `_problems` reports a missing database.
    with suppress(ConfigurationError):
        using = database_of(fence)
    try:
        if using is not None:
            refuse_shared_rows(connections[using].vendor)
    except ConfigurationError as error:
        yield f"{guarded.where}: {guarded.told}: {error}"


def _not_one_database(guarded: Guarded, fence: bool | str) -> Iterator[str]:
    # `_problems` reports a missing database.
    with suppress(ConfigurationError):
        every = opted_out(guarded.wrapper)
        transactions = SyncTransactions(guarded.where, every if isinstance(every, EveryAlias) else None)
        databases = transactions.databases(database_of(fence))
        if len(databases) != 1:
            yield str(one_database(guarded.where, databases))


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
            continue  # `check_names` reports it.
    if (plan := make_plan()) is not None:
        for view in plan.views.values():
            yield from guards_of(view)

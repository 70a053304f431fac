"""System checks of the settings, and of fences: their databases, and the fence table there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core import mail
from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.core.checks import Warning as Caution
from django.core.signals import request_started
from django.db import connections

from distlock.errors import ConfigurationError, LockError
from distlock.fence.stamps import TABLE
from distlock.fence.statements import refuse_shared_rows
from distlock.terms import READ
from distlock.web.body_before_lock import DEFAULTS
from distlock.web.guard_marks import Guarded, guards_of
from distlock.web.guard_options import one_database
from distlock.web.settings.aliases import AliasSettings, read
from distlock.web.settings.clients import fence_for, make_client
from distlock.web.settings.problems import Kind, find_problems, misspelled, shared_with_caches, uncapped
from django_distlock import conf
from django_distlock.checks.placement import guards_at
from django_distlock.guarding.atomic_requests import OptOuts, SyncTransactions
from django_distlock.guarding.call_context import async_with_fence
from django_distlock.guarding.fence import check_database, database_of, table_remedy
from django_distlock.private import opted_out
from django_distlock.rules import make_plan, site_routes

IDS: dict[Kind, str] = {
    "shape": "distlock.E001",
    "backend": "distlock.E002",
    "key": "distlock.E003",
    "value": "distlock.E004",
}


@register("distlock")
def check_settings(**kwargs: object) -> list[CheckMessage]:
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
def check_capacity(**kwargs: object) -> list[CheckMessage]:
    """Report, for ``check --deploy``, an unlimited number of waiting requests, which is no error."""
    setting = getattr(settings, "DISTLOCK", None)
    if setting is None or any(find_problems(setting)):
        return []
    return [Info(problem.message, hint=problem.hint, id="distlock.I001") for problem in uncapped(setting)]


def _check_backends(setting: object) -> Iterator[CheckMessage]:
    for problem in shared_with_caches(setting):
        yield Caution(problem.message, hint=problem.hint, id="distlock.W007")
    by_alias = read(setting, conf.redis_of)
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
        one.refuse_unusable()
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


logger = logging.getLogger("distlock")

_FIRST_REQUEST = "django_distlock.checks"
_THIS_HOST = frozenset({"", "localhost", "127.0.0.1", "::1"})


@register(Tags.urls)
def check_fences(**kwargs: object) -> list[CheckMessage]:
    """Check that fences, locks that are rows, and batches are possible in their databases and their views.

    Does not connect.
    """
    found = dict.fromkeys(_problems(_settings()))
    return [Error(problem, id="distlock.E013") for problem in found]


@register(Tags.database)
def check_tables(*, databases: Sequence[str] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check that those of *databases* that need the fence table have it, for ``check --database default``."""
    fenced = set(_databases(_settings())) if databases else set()
    return [
        _no_table(using)
        for using in databases or ()
        if using in fenced and TABLE not in connections[using].introspection.table_names()
    ]


@register(Tags.urls)
def check_tables_at_hand(*, databases: Sequence[str] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check for the fence table in databases that answer at once, if ``check`` names no databases."""
    at_hand = [] if databases else [using for using in set(_databases(_settings())) if _is_at_hand(using)]
    return [_no_table(using) for using in sorted(at_hand) if _lacks_table(using)]


def tell_missing_tables(**kwargs: object) -> None:
    """Log the databases that need the fence table and lack it. The first request of a process calls this.

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
        hint=table_remedy(using),
        id="distlock.W006",
    )


def _settings() -> dict[str, AliasSettings]:
    found: dict[str, AliasSettings] = {}
    # `check_settings` reports the error.
    with suppress(ConfigurationError):
        by_alias = read(
            getattr(settings, "DISTLOCK", None) or {"default": {"LOCATION": "memory://"}}, conf.redis_of
        )
        for alias in by_alias:
            with suppress(ConfigurationError):
                found[alias] = by_alias[alias]
    return found


def _databases(by_alias: dict[str, AliasSettings]) -> Iterator[str]:
    """Yield the databases that need the fence table, for fences or for locks that are rows."""
    fences = [one.fence for one in by_alias.values()]
    fences += [guarded.options.fence for guarded in _guards() if guarded.options.fence is not None]
    for fence in fences:
        # `check_fences` reports the error.
        with suppress(ConfigurationError):
            if (using := database_of(fence)) is not None:
                yield using


def _problems(by_alias: dict[str, AliasSettings]) -> Iterator[str]:
    for alias, one in by_alias.items():
        yield from _problem(f"DISTLOCK[{alias!r}]", one.fence)
    for guarded in _guards():
        options = guarded.options
        if options.alias not in by_alias:
            continue
        try:
            fence = fence_for(by_alias[options.alias], options)
        except ConfigurationError as error:
            yield f"{guarded.where}: {error}"
            continue
        if options.fence is not None:
            yield from _problem(guarded.where, fence)
        if options.mode == READ and by_alias[options.alias].row_is_lock:
            yield from _not_shared(guarded, fence)
        if options.batch is not None:
            yield from _not_one_database(guarded, fence)
        if fence and iscoroutinefunction(guarded.function):
            row_is_lock = by_alias[options.alias].row_is_lock
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
        yield f"{guarded.where}: {guarded.options}: {error}"


def _not_one_database(guarded: Guarded, fence: bool | str) -> Iterator[str]:
    # `_problems` reports a missing database.
    with suppress(ConfigurationError):
        opt_outs = opted_out(guarded.wrapper)
        transactions = SyncTransactions(guarded.where, opt_outs if isinstance(opt_outs, OptOuts) else None)
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
    for route in site_routes():
        # `check_names` reports guards that can never work.
        with suppress(ConfigurationError):
            yield from (found.guarded for found in guards_at(route))
    if (plan := make_plan()) is not None:
        for view in plan.views.values():
            yield from guards_of(view)

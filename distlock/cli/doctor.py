"""``distlock doctor`` and ``distlock prepare``: look at a lock service before the first lock.

Each finding of the doctor comes with its remedy.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterator
from dataclasses import asdict

import click

from distlock import __version__, clock
from distlock.backends.inspectable import Finding
from distlock.cli.options import Where, with_options
from distlock.cli.output import NO, echo_json, text
from distlock.errors import BackendUnavailable, LockError, LockTimeout
from distlock.locks.client import Locks

#: The lock that the doctor takes as a test. It is always the same, so that names don't pile up.
PROBE = "distlock-doctor"
#: How many round trips are timed.
TRIPS = 20
#: A round trip of more seconds is worth a warning. A lock costs one or two, and each renewal one.
SLOW = 0.02


@click.command("doctor")
@click.option(
    "--threads", type=click.IntRange(1), help="The number of threads in each process of your server."
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@with_options
@click.pass_context
def doctor(context: click.Context, where: Where, as_json: bool, threads: int | None, strict: bool) -> None:
    """Check the lock service and the settings. Each finding comes with its remedy.

    Takes one lock, "distlock-doctor", and releases it. Exits with 1 if there is an error.
    """
    with where.locks() as locks:
        found = [*diagnose(locks), *where.site.examine(where.alias, threads)]
    if as_json:
        echo_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            say(finding)
    bad = {"error", "warning"} if strict else {"error"}
    if any(finding.level in bad for finding in found):
        context.exit(NO)


def say(finding: Finding) -> None:
    click.echo(f"{finding.level:8} {finding.about:12} {text(finding.said)}")
    if finding.remedy:
        click.echo(f"{'':21} -> {finding.remedy}")


@click.command("prepare")
@with_options
def prepare(where: Where) -> None:
    """Make what the lock service needs before its first lock.

    PostgreSQL needs a table and a sequence, MariaDB and MySQL a table: run this as a user who may create
    them. What exists already stays as it is.
    """
    with where.locks() as locks:
        click.echo(locks.namespace.prepare())


def diagnose(locks: Locks) -> Iterator[Finding]:
    """Yield findings about the lock service of *locks*. Take one lock, `PROBE`, and release it.

    Take no lock if the lock service has not been used yet: the first lock would create what all locks need.
    If the lock service is unreachable, or refuses, that is the last finding, and nothing is raised.
    """
    yield Finding("ok", "versions", _versions())
    if not locks.namespace.keeps_out:
        yield Finding(
            "error",
            "locks",
            "This backend locks nothing.",
            "It is meant for tests. Name a lock service, such as redis://localhost:6379/0.",
        )
        return
    if not locks.namespace.may_be_unavailable:
        yield Finding("ok", "locks", "There is no lock service: the locks are rows of the site's database.")
        return
    try:
        if (missing := locks.namespace.unmade()) is not None:
            # What the doctor creates belongs to this user, and might hinder the site's own user.
            yield missing
            yield from locks.namespace.examine()
            return
        yield _round_trip(locks)
        yield _rights(locks)
        yield from locks.namespace.examine()
    except BackendUnavailable as error:
        # The error says what to do.
        yield Finding("error", "reachable", str(error))
    except LockError as error:
        yield Finding("error", "rights", str(error))


def _versions() -> str:
    return f"distlock {__version__}, Python {platform.python_version()}."


def _round_trip(locks: Locks) -> Finding:
    # The first call also connects, so it is not timed.
    locks.namespace.locked(PROBE)
    trips = []
    for _ in range(TRIPS):
        began = clock.now()
        locks.namespace.locked(PROBE)
        trips.append(clock.now() - began)
    median, worst = statistics.median(trips), max(trips)
    said = f"The median of {TRIPS} is {median * 1000:.2f} ms, the slowest took {worst * 1000:.2f} ms."
    if median > SLOW:
        remedy = "Bring the lock service nearer, or look what keeps it busy: each lock costs a round trip."
        return Finding("warning", "round trip", said, remedy)
    return Finding("ok", "round trip", said)


def _rights(locks: Locks) -> Finding:
    try:
        with locks.lock(PROBE) as grant:
            grant.check()
    except LockTimeout as error:
        return Finding("warning", "rights", str(error), "Another doctor is running: try again.")
    return Finding("ok", "rights", f"A lock, {PROBE!r}, was taken and released.")

"""The options that every command has, and the client that they name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from distlock.cli.output import exits_for_errors, exits_if_unwritten
from distlock.cli.site import Alone, Site
from distlock.engine.events import OnLost
from distlock.locks.client import Locks
from distlock.operate.command_line import Typed, typed_for
from distlock.terms import Kind
from distlock.web.settings.clients import typed_in_site


def with_kind(*kinds: Kind) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the option --kind to a command. The first of *kinds* is the default."""
    return click.option("--kind", type=click.Choice(kinds), default=kinds[0], help="What has that name.")


class Commands(click.Group):
    """A group of commands. An option before the command is an error that says where the option belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option = error.option_name
            if option in {"--url", "--prefix", "--alias", "--json"}:
                where = f"{option} stands after the command: {ctx.command_path} list {option} …"
                raise click.UsageError(where, ctx) from None
            raise


class Where(NamedTuple):
    """Which locks a command works on."""

    site: Site
    alias: str | None
    prefix: str | None
    #: The value of --url; None: the site or the environment names the lock service.
    url: str | None = None

    @contextmanager
    def locks(self, on_lost: OnLost | None = None) -> Iterator[Locks]:
        """Yield a client of the locks, and close it. If the block raises a lock error, print it, and exit."""
        with exits_for_errors():
            client = self.site.connect(self.alias, self.prefix, on_lost)
            try:
                yield client
            finally:
                client.close()

    def hint(self, locks: Locks) -> None:
        """Print a hint if the lock service was never used, or if no prefix was given outside of a site."""
        if (missing := locks.namespace.unmade()) is not None:
            click.echo(f"{missing.said} {missing.remedy}", err=True)
        if isinstance(self.site, Alone) and not locks.namespace.prefix:
            # A site's locks are visible only under its prefix.
            click.echo("No prefix was given. For the locks of a site add --prefix, its PREFIX.", err=True)

    def typed(self) -> Typed:
        """Return how to call another command for the same locks."""
        if self.url is not None:
            return typed_for(self.url, self.prefix)
        typed = typed_in_site(self.site.command, self.alias)
        return typed if self.prefix is None else typed.with_option("--prefix", self.prefix)


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to the command *function*. It gets *where*, and *as_json* if it has that parameter."""

    @click.option("--url", metavar="URL", help="The lock service, such as redis://localhost:6379/0.")
    @click.option("--prefix", metavar="TEXT", help="The prefix of the names, PREFIX in a site's settings.")
    @click.option("--alias", metavar="NAME", help="A key of DISTLOCK in the site's settings.")
    @click.pass_context
    @functools.wraps(function)
    def with_where(
        context: click.Context, /, url: str | None, prefix: str | None, alias: str | None, **given: Any
    ) -> None:
        # A context without an object has its parent's.
        site = Alone(url) if url else context.find_object(Site) or Alone()  # type: ignore[type-abstract]
        with exits_if_unwritten():
            function(where=Where(site, alias, prefix, url or None), **given)

    if "as_json" in inspect.signature(function).parameters:
        return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(with_where)
    return with_where

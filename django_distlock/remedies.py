"""What to write instead, for guards that stand where they can't hold what they promise."""

from __future__ import annotations

from distlock.errors import ConfigurationError
from distlock.web.decorator import Guarded
from django_distlock.placement import Standing
from django_distlock.transactions import EveryAlias
from django_distlock.viewclasses import with_methods


def line_for_method(guarded: Guarded, standing: Standing) -> str:
    """For one method of a class, which is called inside the transaction of ``ATOMIC_REQUESTS``."""
    request, cls = standing.request, type(standing.view)
    match = getattr(request, "resolver_match", None)
    if getattr(standing.view, "action_map", None) and match is not None and match.view_name:
        # Above the class it would lock the other actions, too, and their routes may not have the arguments.
        return (
            f'Leave it out there, and write DISTLOCK_RULES = [{{"route": {match.view_name!r}, "methods": '
            f'[{request.method!r}], "lock": …}}].'
        )
    return f"Write @{with_methods(guarded.told, request.method)} above the class {cls.__name__}."


def refuse_async(guarded: Guarded, every: EveryAlias, standing: Standing) -> None:
    """Raise `ConfigurationError` for the async view that Django would refuse, did our mark not keep it."""
    for alias in every.atomic_requests():
        line = "@transaction.non_atomic_requests above it"
        if standing.view is not None or hasattr(guarded.wrapper, "view_class"):
            line = '@method_decorator(transaction.non_atomic_requests, name="dispatch") above the class'
        raise ConfigurationError(
            f"{guarded.where} is async, and the database {alias!r} has ATOMIC_REQUESTS, which Django can't "
            f"do for async views. Write {line}, and open transactions in functions that sync_to_async() runs."
        )

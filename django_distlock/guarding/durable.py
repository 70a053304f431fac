"""``durable=True`` in a view whose transaction is shared: it asks for a COMMIT of its own."""

from __future__ import annotations

from django.db.transaction import Atomic

from distlock.errors import ConfigurationError


def refuse_durable(where: str, error: RuntimeError) -> None:
    """Raise `ConfigurationError` if *error*, of the view *where*, is Django's word about ``durable=True``."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None and traceback.tb_frame.f_code is Atomic.__enter__.__code__:
        raise ConfigurationError(
            f"{where} has batch=, and begins a transaction with durable=True, whose COMMIT is that of all "
            "requests of the batch. Write transaction.atomic() without it, or leave batch= out."
        ) from error

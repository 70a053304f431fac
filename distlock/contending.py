"""Telling that a caller has to wait: nobody who is not told pays anything for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from distlock.acquirer import Acquirer
from distlock.engine.steps import Gate, Park, Steps
from distlock.grant import Grant
from distlock.namespace import Namespace
from distlock.operate.looking import Party, known_holder
from distlock.reentrance import park
from distlock.terms import Terms

T = TypeVar("T")

#: Called when a caller begins to wait: with what is known, at no cost, of the holder.
OnContended = Callable[[Party | None], None]


class Contended:
    """*inner*, with *tell* called before an acquisition waits for the first time."""

    def __init__(self, inner: Acquirer, tell: OnContended) -> None:
        self.namespace = inner.namespace
        self._inner = inner
        self._tell = tell

    def acquire(
        self, names: tuple[str, ...], gate: Gate, seconds: float, terms: Terms
    ) -> Steps[Grant | None]:
        steps = self._inner.acquire(names, gate, seconds, terms)
        if not seconds > 0:
            return steps  # It waits for answers only.
        return told_of_the_wait(steps, lambda: self._tell(holder_of(self.namespace, names)))


def holder_of(namespace: Namespace, names: tuple[str, ...]) -> Party | None:
    """What is known of the holder of one of *names*. Asks nobody."""
    return next((one for name in names if (one := known_holder(namespace, name)) is not None), None)


def told_of_the_wait(steps: Steps[T], tell: Callable[[], None]) -> Steps[T]:
    """*steps*, with *tell* called before they wait for the first time."""
    try:
        step, told = next(steps), False
        while True:
            if isinstance(step, Park) and not told:
                told = True
                # It waits from here on. One that asks for the same lock there would wait for itself, and is
                # refused as a signal handler is.
                park(lambda _: tell(), 0.0)
            try:
                answer = yield step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()

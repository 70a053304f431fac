"""A race in several processes, forked from the process of the test."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

from distlock import clock
from distlock.errors import ConfigurationError
from distlock.locks.engine_namespace import EngineNamespace
from distlock.locks.namespace import Namespace
from distlock.testing import race_frameworks
from distlock.testing.fakes import Fake
from distlock.testing.race_threads import Action, RaceCall, in_threads, raised
from distlock.web.stale_writes import Mode

#: Seconds that a process has after its calls to send the result.
RESULT_GRACE = 5.0


def in_processes(
    action: Action, times: int, processes: int, within: float, stale_writes: Mode | None = None
) -> tuple[list[RaceCall], float]:
    """Do the same as `in_threads`, with the threads spread over *processes* forked processes.

    Raises RuntimeError if a process ends early.
    """
    context = multiprocessing.get_context("fork")
    # The main thread of each process waits at the barrier, too.
    start = context.Barrier(times + processes)
    deadline = clock.now() + 2 * within + RESULT_GRACE
    race_frameworks.before_fork()
    children = []
    try:
        for number in range(processes):
            share = times // processes + (number < times % processes)
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(
                target=_run,
                args=(theirs, action, share, within, start.wait, stale_writes),
                daemon=True,
            )
            with warnings.catch_warnings():
                # Python warns of a fork while other threads run, as those of distlock do.
                warnings.simplefilter("ignore", DeprecationWarning)
                child.start()
            children.append((child, ours))
            theirs.close()
        results = [_receive(ours, deadline, within) for _, ours in children]
    finally:
        for child, ours in children:
            child.kill()
            child.join()
            child.close()
            ours.close()
    return [call for calls, _ in results for call in calls], max(seconds for _, seconds in results)


def _receive(ours: Connection, deadline: float, within: float) -> tuple[list[RaceCall], float]:
    """Return the result of one process. Raise the error that it sent, or an error if it sends nothing."""
    late = f"A process of the race has told nothing {2 * within + RESULT_GRACE:g} seconds after its start."
    try:
        if not ours.poll(max(0.0, deadline - clock.now())):
            raise TimeoutError(late)
        result = pickle.loads(ours.recv_bytes())  # noqa: S301  # from our own child
    except EOFError:
        raise RuntimeError("A process of the race has ended before its calls had.") from None
    if isinstance(result, Exception):
        raise result
    calls, seconds = result
    return calls, seconds


def _run(
    theirs: Connection,
    action: Action,
    share: int,
    within: float,
    start: Callable[[float], object],
    stale_writes: Mode | None,
) -> None:
    """Run the *share* of the calls that one child process has, and send their result or its error."""
    race_frameworks.forget_connections_of_parent()
    result: object
    thread_only: set[str] = set()
    try:
        with Fake(refuses=_collecting_thread_only_backends(thread_only)):
            calls, seconds = in_threads(action, share, within, start, stale_writes)
        if thread_only:
            raise ConfigurationError(
                f"The race ran in several processes, and {', '.join(sorted(thread_only))} keeps the threads "
                "of one apart: let the test have a lock service that all of them share, such as "
                "file:///tmp/shop-test-locks, or race with processes=1."
            )
        result = [_portable(call) for call in calls], seconds
    except Exception as error:
        result = _portable(raised(error)).error
    theirs.send_bytes(pickle.dumps(result))
    theirs.close()


def _collecting_thread_only_backends(thread_only: set[str]) -> Callable[[Namespace, tuple[str, ...]], bool]:
    """Return a `Fake.refuses` that adds to *thread_only* each used backend that excludes only threads."""

    def refuses(namespace: Namespace, asked: tuple[str, ...]) -> bool:
        if isinstance(namespace, EngineNamespace) and namespace.may_be_unavailable:
            backend = namespace.engine.backend
            if not backend.capabilities.several_processes:
                thread_only.add(type(backend).__name__)
        return False

    return refuses


def _portable(call: RaceCall) -> RaceCall:
    """Return *call*, with texts in place of its objects if they can't be sent to another process."""
    try:
        pickle.loads(pickle.dumps((call.answer, call.error)))  # noqa: S301
    except Exception:
        return call.in_words()
    return call

"""The faults that strike inside a worker: what runs out, and what its own code does to its locks.

Each has callers of its own where it needs some. They take plain locks beside the other callers of the worker.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
import random
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import distlock
from tests.soak.attempts import AWAY
from tests.soak.faults import Deck, Schedule
from tests.soak.notes import Notebook

if TYPE_CHECKING:
    from tests.soak.worker import Worker

#: The mean time between two faults in a worker, and for how long one lasts, seconds.
PAUSE, LASTS = 4.0, 1.0
#: An interrupted caller may leave a lock behind, which ends after this, seconds, and the ttl.
MAX_HOLD = 1.0
#: A child that has not ended by then hangs, seconds.
HANGS = 40.0
#: No thread can have a stack of so many bytes.
NO_STACK = 1 << 46
_PR_SET_PDEATHSIG = 1
_OURS = str(Path(distlock.__file__).parent)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Caller:
    """Takes plain locks, one after the other, and notes what the worker's callers note."""

    _numbers = itertools.count(1)

    def __init__(self, notes: Notebook, names: int, caller: str, choices: random.Random) -> None:
        self._notes, self._names, self._choices = notes, names, choices
        self._caller = f"{os.getpid()}/{caller}"
        #: Whether a signal handler may raise now.
        self.armed = False

    def take(self, locks: distlock.Locks) -> None:
        """Take a lock, and release it."""
        own, name = self._asked()
        try:
            self.armed = True
            grant = locks.lock(name).acquire(timeout=self._choices.choice((0.1, 8.0)))
            self.armed = False
        except (distlock.BackendUnavailable, Interrupted) as error:
            self.armed = False
            self._notes.note("refused", id=own, how=type(error).__name__, why=f"{error}")
            threading.Event().wait(AWAY)
            return
        if grant is None:
            self._notes.note("refused", id=own, how="timeout")
            return
        self._granted(own, grant)
        threading.Event().wait(self._choices.random() * 0.01)
        self._releasing(own, grant)
        try:
            self.armed = True
            grant.release()
            self.armed = False
        except Interrupted:
            self.armed = False
        self._notes.note("released", id=own)

    async def take_as_task(self, locks: distlock.Locks) -> None:
        """Take a lock, and release it, although the task may be cancelled."""
        own, name = self._asked()
        try:
            grant = await locks.lock(name).aacquire(timeout=self._choices.choice((0.1, 8.0)))
        except (distlock.BackendUnavailable, asyncio.CancelledError) as error:
            self._notes.note("refused", id=own, how=type(error).__name__, why=f"{error}")
            if isinstance(error, asyncio.CancelledError):
                raise
            await asyncio.sleep(AWAY)
            return
        if grant is None:
            self._notes.note("refused", id=own, how="timeout")
            return
        self._granted(own, grant)
        try:
            await asyncio.sleep(self._choices.random() * 0.01)
        finally:
            self._releasing(own, grant)
            try:
                await grant.arelease()
            finally:
                self._notes.note("released", id=own)

    def _asked(self) -> tuple[str, str]:
        own, name = f"own {next(self._numbers)}", f"n{self._choices.randrange(self._names)}"
        about = {"caller": self._caller, "names": [name], "kind": "lock"}
        self._notes.note("asked", id=own, permits=1, limit=0, depth=0, **about)
        return own, name

    def _granted(self, own: str, grant: distlock.Grant) -> None:
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "granted", id=own, fences=dict(grant.fences), lost=lost)

    def _releasing(self, own: str, grant: distlock.Grant) -> None:
        now, lost = time.monotonic(), grant.lost
        self._notes.note_at(now, "releasing", id=own, lost=lost)


class ProcessFaults:
    """Draws the faults of one worker, and strikes with them until the work is over."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._orders, self._notes, self._over = worker.orders, worker.notes, worker.over
        self._locks, self._schedule = worker.locks, Schedule(*worker.orders.schedule)
        self._choices = random.Random(f"{worker.orders.seed} faults")
        self._pause = threading.Event()
        self._main: Caller | None = None

    def work(self) -> None:
        """Strike from a thread. This one, the main thread, is a caller that signals interrupt."""
        striker = threading.Thread(target=self._strike)
        striker.start()
        if "interrupts" in self._orders.faults:
            try:
                self._be_interrupted()
            except Exception as error:
                self._note_error(error)
        striker.join()

    def _strike(self) -> None:
        deck = Deck(self._orders.faults, self._choices)
        while not self._over.wait(self._choices.expovariate(1 / PAUSE)):
            if calm := self._schedule.calm_left(time.monotonic()):
                self._over.wait(calm)
                continue
            try:
                FAULTS[deck.draw()](self)
            except Exception as error:
                self._note_error(error)

    def _note_error(self, error: Exception) -> None:
        self._notes.note("error", what="".join(traceback.format_exception(error)[-3:]))

    @contextmanager
    def _struck(self, what: str, more: float = 0.0, forgets: bool = False) -> Iterator[None]:
        """Note when a fault begins and ends. *more*: for how long it may keep others waiting afterwards."""
        self._notes.note("struck", what=what, forgets=forgets)
        try:
            yield
        finally:
            self._notes.note("recovered", what=what, more=more)

    def _caller(self, name: str) -> Caller:
        return Caller(self._notes, self._orders.names, name, random.Random(self._choices.random()))

    def _connect(self, **more: float) -> distlock.Locks:
        """Return another client of the same locks."""
        orders = self._orders
        return distlock.connect(orders.url, prefix=orders.prefix, ttl=orders.ttl, timeout=8, **more)

    # -- what runs out ---------------------------------------------------------------------------

    def run_out_of_descriptors(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self._struck("EMFILE"):
            highest = max(int(number) for number in os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            fillers = []
            try:
                with suppress(OSError):
                    while True:
                        fillers.append(os.dup(0))
                self._pause.wait(LASTS)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for filler in fillers:
                    os.close(filler)

    def run_out_of_threads(self) -> None:
        with self._struck("no threads"):
            # No address space has room for such a stack, so no thread starts. Root has no limit of threads.
            before = threading.stack_size(NO_STACK)
            try:
                self._pause.wait(LASTS)
            finally:
                threading.stack_size(before)

    # -- what its code does ----------------------------------------------------------------------

    def _be_interrupted(self) -> None:
        """Take locks in the main thread, with a client whose locks end soon if nobody knows of them."""
        caller = self._main = self._caller("interrupted")

        def interrupt(number: int, frame: FrameType | None) -> None:
            while caller.armed and frame is not None:
                if frame.f_code.co_filename.startswith(_OURS):
                    raise Interrupted
                frame = frame.f_back

        signal.signal(signal.SIGUSR1, interrupt)
        locks = self._connect(max_hold=MAX_HOLD)
        while not self._over.is_set():
            caller.take(locks)
        locks.close()

    def interrupt(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        self._worker.interrupts += 1
        forgets = self._orders.url.startswith(("postgresql:", "mysql:"))
        with self._struck("interrupts", more=MAX_HOLD, forgets=forgets):
            end = time.monotonic() + LASTS
            while time.monotonic() < end:
                signal.pthread_kill(main, signal.SIGUSR1)
                self._pause.wait(self._choices.random() * 0.05)

    def cancel_tasks(self) -> None:
        with self._struck("cancelled tasks"):
            asyncio.run(self._cancel_tasks())

    async def _cancel_tasks(self) -> None:
        callers = [self._caller(f"cancelled {number}") for number in range(4)]
        end = time.monotonic() + LASTS

        async def keep_taking(caller: Caller) -> None:
            while time.monotonic() < end:
                with suppress(asyncio.CancelledError):
                    await caller.take_as_task(self._locks)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(keep_taking(caller)) for caller in callers]
            while time.monotonic() < end:
                self._choices.choice(tasks).cancel()
                await asyncio.sleep(self._choices.random() * 0.03)

    def close_client(self) -> None:
        """Close a client while threads hold its locks and wait for them, several times."""
        locks, over = self._connect(), threading.Event()

        def keep_taking(caller: Caller) -> None:
            try:
                while not over.is_set():
                    caller.take(locks)
            except Exception as error:
                self._note_error(error)

        callers = [self._caller(f"closed {number}") for number in range(3)]
        threads = [threading.Thread(target=keep_taking, args=(caller,)) for caller in callers]
        with self._struck("client closed"):
            for thread in threads:
                thread.start()
            for _ in range(3):
                self._pause.wait(self._choices.random() * 0.5)
                locks.close()
            over.set()
            for thread in threads:
                thread.join()
            locks.close()

    def drop_client(self) -> None:
        """Forget a client that holds nothing, without closing it."""
        with self._struck("client dropped"):
            locks = self._connect()
            caller = self._caller("dropped")
            for _ in range(3):
                caller.take(locks)
            del locks
            gc.collect()

    def fork(self) -> None:
        """Fork a child that takes locks of its own, or that only lives for a while."""
        takes, lives = self._choices.random() < 0.7, self._choices.random()
        with self._struck("fork"):
            child = os.fork()
            if child == 0:
                self._be_child(takes, lives)
            _, status = os.waitpid(child, 0)
        if status:
            self._notes.note("error", what=f"a forked child ended with {os.waitstatus_to_exitcode(status)}")

    def _be_child(self, takes: bool, lives: float) -> None:
        status = 1
        try:
            # It ends with the worker, and by itself if it hangs.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.alarm(int(HANGS))
            notes = Notebook(Path(self._orders.directory))
            try:
                caller = Caller(notes, self._orders.names, "child", self._choices)
                for _ in range(3 if takes else 0):
                    caller.take(self._locks)
                self._pause.wait(lives)
                status = 0
            except Exception as error:
                notes.note("error", what="".join(traceback.format_exception(error)[-3:]))
        finally:
            os._exit(status)


#: What can strike inside a worker, by name.
FAULTS: dict[str, Callable[[ProcessFaults], None]] = {
    "EMFILE": ProcessFaults.run_out_of_descriptors,
    "no threads": ProcessFaults.run_out_of_threads,
    "interrupts": ProcessFaults.interrupt,
    "cancelled tasks": ProcessFaults.cancel_tasks,
    "client closed": ProcessFaults.close_client,
    "client dropped": ProcessFaults.drop_client,
    "fork": ProcessFaults.fork,
}


def strike(worker: Worker) -> None:
    """Strike inside *worker* until its work is over. The main thread calls this."""
    if worker.orders.faults:
        ProcessFaults(worker).work()

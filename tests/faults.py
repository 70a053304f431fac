"""The faults that may strike a site, as data, and the page that names their tests.

A test carries ``@pytest.mark.fault("F05")``, with the number of each fault that it plays. A control, which is
marked with ``control=True``, plays the fault without the care that the other tests check, and shows harm. A
test whose parameters switch the care off carries both marks. Run ``python -m tests.faults`` when a mark or a
sentence below has changed: it writes the table of the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explanation/faults.md"
TABLE = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- faults end -->)", re.DOTALL)
HEAD = (
    "| | what goes wrong | what must hold | tests | controls | what is missing |\n|---|---|---|---|---|---|\n"
)


class Fault(NamedTuple):
    number: str
    #: What goes wrong.
    what: str
    #: The promises of docs/explanation/promises.md that the tests check, and what they mean here.
    must: str
    #: What no test plays, and what stands in for it. Empty if nothing is missing.
    missing: str = ""


class Mark(NamedTuple):
    """A number that a mark in the tests names."""

    number: str
    #: The test, as pytest calls it without its parameters. Empty if the mark stands above no test.
    test: str
    #: Whether the test plays the fault without our care.
    control: bool = False


FAULTS = (
    # -- processes ---------------------------------------------------------------------------------
    Fault(
        "F01",
        "SIGKILL ends the process that holds a lock.",
        "G1, G3: the next process gets the lock within a `TTL`, and a purchase is one order or none.",
        "No test kills a holder while its COMMIT is on the way to the database.",
    ),
    Fault(
        "F02",
        "SIGKILL ends processes that wait at the head of the queue.",
        "G5: the lock passes to the first waiter that lives, and not every dead one costs time.",
        "Five hundred waiters that died together are entries that a test writes into Redis, not processes.",
    ),
    Fault(
        "F03",
        "A holder stands still for longer than its lease, and then goes on.",
        "G1: if another holder came between, its transaction is rolled back, and it is answered with 503.",
        "No holder stands still while the reply that grants the lock waits in its socket.",
    ),
    Fault(
        "F04",
        "A waiter stands still when its turn comes.",
        "G3, G5: the lock passes to the next waiter, and the one that stood still waits again.",
    ),
    Fault(
        "F05",
        "A long call in C keeps the interpreter of the holder busy, so nothing renews its lease.",
        "G1, G7: the holder finds its lock lost before it commits.",
    ),
    Fault(
        "F06",
        "A web server reloads, shuts down, or replaces a worker.",
        "G3: a process that ends in order gives its locks back at once, without a wait for the lease.",
        "No test reloads or shuts down gunicorn under load: the tests end plain processes that hold a lock.",
    ),
    Fault(
        "F07",
        "A process forks while it holds a lock.",
        "The child owns no lock, uses no connection of its parent, and releases nothing.",
    ),
    Fault(
        "F08",
        "A task is cancelled, or a signal handler raises, at any point of acquire and release.",
        "G3: neither a lock nor a place in the queue stays behind, and each reply reaches its own caller.",
        "No test runs under gevent.",
    ),
    # -- Redis -------------------------------------------------------------------------------------
    Fault(
        "F09",
        "Redis is killed and comes back without its data.",
        "G1: two processes may hold one lock, but nothing is sold twice, and fences grow.",
    ),
    Fault(
        "F10",
        "Redis is killed and comes back with what its append-only file has kept.",
        "G1: fences grow.",
        "No test runs Redis with an append-only file. The tests of F09 stand in: fences follow the clock of "
        "the server, so they grow even if Redis has kept nothing.",
    ),
    Fault(
        "F11",
        "Redis stands still.",
        "G3: each call ends by its deadline, and Redis is used again when it goes on.",
        "No test on Redis lasts until the holder's own deadline: `tests/engine/test_maintenance.py` does, "
        "with a lock service in memory. No test blocks Redis by a slow script.",
    ),
    Fault(
        "F12",
        "An operator flushes the data or the scripts of Redis, or ends its connections.",
        "G1, G7: fences grow, and a holder is told. Lost scripts and connections cost no lock.",
        "No test rewrites the configuration file of a running Redis.",
    ),
    Fault(
        "F13",
        "Redis reaches `maxmemory` and evicts nothing.",
        "G4: new locks are refused with the reason. Held locks are renewed, handed on and released.",
    ),
    Fault(
        "F14",
        "Redis evicts the keys of locks to make room.",
        "The log warns once, and the doctor names the policy.",
        "No test fills Redis until it evicts a lock. The lost data of F12 stands in.",
    ),
    Fault(
        "F15",
        "The disk of the lock service is full.",
        "G4: new locks are refused with the reason, and a held lock can be released.",
        "The disk is that of `file://`. No test fills the disk of Redis.",
    ),
    Fault(
        "F16",
        "The clock of the server jumps, or does not run at the right speed.",
        "G1: fences grow.",
        "No test sets the clock of a server: numbers ahead of the clock of Redis stand in, and for files a "
        "made-up clock. Leases count on a clock that never jumps.",
    ),
    # -- the network and logins --------------------------------------------------------------------
    Fault(
        "F17",
        "The network is slow, or delivers byte by byte.",
        "G3: each call, and each wait for a lock, ends by its deadline.",
        "Only the slow delivery of bytes is played: no test adds a fixed delay or jitter.",
    ),
    Fault(
        "F18",
        "A connection stays open, but nothing gets through, one way or both ways.",
        "G3, G7: the call ends by its deadline, another connection is used, and a lost lock is noticed.",
        "No test keeps a holder cut off until its lease is over. In F28 its connections are closed instead.",
    ),
    Fault(
        "F19",
        "The lock service breaks connections off, or its password, rights or certificate change.",
        "G4: the error says what to do, and shows no password.",
        "No test sends a flood of resets: the connections of F12, which the server closes, stand in.",
    ),
    # -- several servers of Redis ------------------------------------------------------------------
    Fault(
        "F20",
        "A primary dies, and the replica that takes over lacks the last locks.",
        "G1, G7: nothing is sold twice, fences grow, and a holder whose lock is gone is told.",
    ),
    Fault(
        "F21",
        "The network cuts off a primary with one server of the shop, and both sides grant locks.",
        "G1: fenced views sell nothing twice. With `min-replicas-to-write` the old primary grants nothing.",
        "No network is cut: a sentinel that keeps naming the old primary stands in.",
    ),
    Fault(
        "F22",
        "Sentinel replaces a primary that lives, in the middle of a sale.",
        "G1, G3: all clients leave the old primary, and the sale goes on and is exact.",
        "Each run has one failover. No test has ten in a row.",
    ),
    Fault(
        "F23",
        "The primary of a slot in Redis Cluster dies, or a replica is told to take over.",
        "G1, G3: the sale goes on at the replica, and with the fence nothing is sold twice.",
        "The takeover by command is played with one waiter, not in a sale.",
    ),
    Fault(
        "F24",
        "A slot of Redis Cluster moves while its lock is held and waited for.",
        "G5: the hold and its queue move along, and the sale is exact without the fence.",
    ),
    Fault(
        "F25",
        "Of five servers of Redlock some die, stand still, or lose their data.",
        "G1, G4: a majority is enough, less is an error. Where two hold one lock, the later fence is larger.",
        "No test sets the clock of one server: `tests/topologies/redlock/test_fences.py` has one that counts "
        "ahead instead.",
    ),
    # -- ZooKeeper ---------------------------------------------------------------------------------
    Fault(
        "F26",
        "The leader of ZooKeeper dies, or the follower that has the session.",
        "G1, G3: the lock and its queue stay, and the sale is exact without the fence.",
    ),
    Fault(
        "F27",
        "Two of three servers of ZooKeeper are down.",
        "G4: nothing is granted, and nothing is renewed.",
        "No test brings the two back, or looks when the holder is told. In F28 it is told in time.",
    ),
    Fault(
        "F28",
        "A client loses its server of ZooKeeper, or the server stands still.",
        "G3, G7: the client uses another connection, or the holder is told before another gets the lock.",
        "No test stops the leader of three servers: a follower and a server alone are stopped.",
    ),
    Fault(
        "F29",
        "Another client takes over a session with ZooKeeper and closes it.",
        "G1, G7: the lock counts as lost, and a waiter waits again in a new session.",
        "The tests ask the backend. How a loss reaches the holder is tested in F28.",
    ),
    Fault(
        "F30",
        "A disk of ZooKeeper is full, or its data is gone.",
        "G1: the server is used again. A fence that fell behind is refused, and `FENCE_EPOCH` is the remedy.",
        "No test fills the disk, and the server that loses its data is alone: no ensemble is wiped.",
    ),
    # -- databases ---------------------------------------------------------------------------------
    Fault(
        "F31",
        "The database ends the holder's connection, or stops during COMMIT.",
        "G1, G7: nothing is half done, the holder is told, and a repeated request finds its order.",
        "No test stops PostgreSQL during a COMMIT: a proxy that swallows the reply stands in.",
    ),
    Fault(
        "F32",
        "The holder's connection to the database is dead, and the database does not know.",
        "G3: the next holder waits until the database ends the idle transaction.",
        "No test drops packets. To the database this holder looks like one that stands still, as in F33: the "
        "same limit of the database ends both.",
    ),
    Fault(
        "F33",
        "A process stands still between the fence and COMMIT, and keeps the row locked.",
        "G3: others get 423 after their `TIMEOUT`. The database's limit ends the transaction.",
    ),
    Fault(
        "F34",
        "The database, or its pool, has no connection left.",
        "G3: waiters leave the connections to the holder, or wait for one in time.",
    ),
    Fault(
        "F35",
        "The database ends a transaction: a deadlock, a conflict, a limit, a full disk.",
        "G1: the whole transaction is rolled back, and the answer or the error says so.",
        "No test fills the disk of a database.",
    ),
    Fault(
        "F36",
        "A standby of PostgreSQL that lags behind takes over.",
        "G1: stock and fences go back together, as rows of one database do.",
        "No test promotes a standby. The doctor warns of one that may lack the last fences "
        "(`tests/topologies/postgresql/test_doctor.py`).",
    ),
    Fault(
        "F37",
        "PgBouncer stands before the database and pools transactions.",
        "G4: locks that belong to a session are refused there, and the error says what to set.",
        "A proxy in the tests stands in for PgBouncer. No test locks rows through it.",
    ),
    # -- a site ------------------------------------------------------------------------------------
    Fault(
        "F38",
        "A client goes away while it waits, its request is sent twice, or its worker dies.",
        "G3: an async view leaves the queue. A purchase that is repeated with its key is one order.",
        "The clients go away from Django, and not behind nginx. That nginx sends no purchase twice is read "
        "in the shop's configuration of it (`tests/loadtest/test_stack.py`).",
    ),
    Fault(
        "F39",
        "10,000 requests wait for one name, 100,000 names are used, or clients send slowly.",
        "G6: requests above the cap are refused at once, other names are served, and nothing stays behind.",
        "The tests have 1,000 waiters and 50,000 names. They measure no delay of other names.",
    ),
    Fault(
        "F40",
        "A worker has no memory left, or no descriptors, or a host name can't be resolved.",
        "G4: the error says what has run out, and the next lock is granted when it is there again.",
        "No test sets a limit of memory: it would end a worker by SIGKILL, as in F01.",
    ),
    Fault(
        "F41",
        "Carts lock several products in different orders, and one process dies halfway.",
        "G3: no two carts wait for each other for ever.",
        "No test kills a process that holds some of its locks and waits for the others.",
    ),
    Fault(
        "F42",
        "A shop moves from one lock service to another while it sells.",
        "G1: nothing is sold twice, and an older epoch is refused.",
        "The two lock services are two databases of one Redis, or Redis and files, but not ZooKeeper.",
    ),
    Fault(
        "F43",
        "The machine is suspended for longer than a lease.",
        "G7: the time counts, so the holder finds its lock lost.",
        "The test moves the engine's clock by an hour. None suspends a machine or freezes its processes. "
        "No test shows that the real clock, `CLOCK_BOOTTIME`, counts suspended time.",
    ),
)


def marks_in(source: str, path: str) -> Iterator[Mark]:
    """Yield what the marks in *source* name, without an import of it."""
    tree = ast.parse(source)
    tests = dict(_decorated(tree.body, path))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.fault"):
            control = any(keyword.arg == "control" for keyword in call.keywords)
            for number in call.args:
                written = number.value if isinstance(number, ast.Constant) else ast.unparse(number)
                yield Mark(str(written), tests.get(call, ""), control)


def _decorated(body: list[ast.stmt], above: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield each decorator of a test, or of a class of tests, in *body* with what pytest calls the test."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}::{node.name}"
            if node.name.lower().startswith("test"):
                yield from ((decorator, name) for decorator in node.decorator_list)
            if isinstance(node, ast.ClassDef):
                yield from _decorated(node.body, name)


def marks() -> Iterator[Mark]:
    """Yield what all marks in the tests name."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text("utf-8")
        if "mark.fault" in source:
            yield from marks_in(source, path.relative_to(ROOT).as_posix())


def played_by(fault: Fault, marked: list[Mark], control: bool = False) -> list[str]:
    """Return the tests in *marked* that play *fault*; with *control*, the controls instead."""
    return [mark.test for mark in marked if mark.number == fault.number and mark.control is control]


def filled(page: str, marked: list[Mark]) -> str:
    """Return *page* with the table that it should have."""
    rows = [
        f"| {fault.number} | {fault.what} | {fault.must} | {_listed(played_by(fault, marked))} "
        f"| {_listed(played_by(fault, marked, control=True))} | {fault.missing} |\n"
        for fault in FAULTS
    ]
    return TABLE.sub(lambda _: f"\n{HEAD}{''.join(rows)}\n", page)


def _listed(tests: list[str]) -> str:
    return ", ".join(f"`{test}`" for test in tests) or "none"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), list(marks())), "utf-8")

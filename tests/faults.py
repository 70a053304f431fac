"""The faults that may strike a site, as data, and the page that names their tests.

Run ``python -m tests.faults`` when a mark in the tests or a sentence below has changed: it writes the table
of the page. `tests.marked_pages` says what a mark means.
"""

from __future__ import annotations

from tests.marked_pages import Case, MarkedPage

FAULTS = (
    # -- processes ---------------------------------------------------------------------------------
    Case(
        "F01",
        "SIGKILL ends the process that holds a lock.",
        "G1, G3: the next process gets the lock within a `TTL`, and a purchase is one order or none.",
    ),
    Case(
        "F02",
        "SIGKILL ends processes that wait at the head of the queue.",
        "G5: the lock passes to the first waiter that lives, without a delay for each dead one.",
    ),
    Case(
        "F03",
        "A holder stands still for longer than its lease, and then goes on.",
        "G1: if another process had the lock meanwhile, the transaction is rolled back; the answer is 503.",
    ),
    Case(
        "F04",
        "A waiter stands still when its turn comes.",
        "G3, G5: the lock passes to the next waiter, and the one that stood still waits again.",
    ),
    Case(
        "F05",
        "A long call in C keeps the interpreter of the holder busy, so nothing renews its lease.",
        "G1, G7: the holder finds its lock lost before it commits.",
    ),
    Case(
        "F06",
        "A web server reloads, shuts down, or replaces a worker.",
        "G3: a process that ends in order gives its locks back at once, without a wait for the lease.",
    ),
    Case(
        "F07",
        "A process forks while it holds a lock.",
        "The child owns no lock, uses no connection of its parent, and releases nothing.",
    ),
    Case(
        "F08",
        "A task or greenlet is ended, or a signal handler raises, at any point of acquire and release.",
        "G3: neither a lock nor a place in the queue stays behind, and each reply reaches its own caller.",
    ),
    # -- Redis -------------------------------------------------------------------------------------
    Case(
        "F09",
        "Redis is killed and comes back without its data.",
        "G1: two processes may hold one lock, but nothing is sold twice, and fences grow.",
    ),
    Case(
        "F10",
        "Redis is killed and comes back with what its append-only file has kept.",
        "G1: fences grow. A hold and a queue that the file has kept go on.",
        "No power is cut: the test kills Redis, and cuts off the end of its file.",
    ),
    Case(
        "F11",
        "Redis stands still.",
        "G3: each call ends by its deadline, and Redis is used again when it goes on.",
    ),
    Case(
        "F12",
        "An operator flushes the data or the scripts of Redis, or ends its connections.",
        "G1, G7: fences grow, and a holder is told. Lost scripts and connections cost no lock.",
    ),
    Case(
        "F13",
        "Redis reaches `maxmemory` and evicts nothing.",
        "G4: new locks are refused with the reason. Held locks are renewed, handed on and released.",
    ),
    Case(
        "F14",
        "Redis evicts the keys of locks to make room.",
        "G1: with the fence nothing is sold twice. The log warns once, and the doctor names the policy.",
    ),
    Case(
        "F15",
        "The disk of the lock service is full.",
        "G4, G7: new locks are refused with the reason. A hold is released, or its holder is told.",
    ),
    Case(
        "F16",
        "The clock of the server jumps, or does not run at the right speed.",
        "G1: fences grow.",
    ),
    # -- the network and logins --------------------------------------------------------------------
    Case(
        "F17",
        "The network is slow, or delivers byte by byte.",
        "G3: each call, and each wait for a lock, ends by its deadline.",
    ),
    Case(
        "F18",
        "A connection stays open, but nothing gets through, one way or both ways.",
        "G3, G7: the call ends by its deadline, another connection is used, and a lost lock is noticed.",
    ),
    Case(
        "F19",
        "The lock service breaks connections off, or its password, rights or certificate change.",
        "G1, G4: the error says what to do, and shows no password. A sale goes on through a flood of resets.",
    ),
    # -- several servers of Redis ------------------------------------------------------------------
    Case(
        "F20",
        "A primary dies, and the replica that takes over lacks the last locks.",
        "G1, G7: nothing is sold twice, fences grow, and a holder whose lock is gone is told.",
    ),
    Case(
        "F21",
        "The network cuts off a primary with one server of the shop, and both sides grant locks.",
        "G1: fenced views sell nothing twice. With `min-replicas-to-write` the old primary grants nothing.",
    ),
    Case(
        "F22",
        "Sentinel replaces a primary that lives, in the middle of a sale.",
        "G1, G3: all clients leave the old primary, and the sale goes on and is exact.",
    ),
    Case(
        "F23",
        "The primary of a slot in Redis Cluster dies, or a replica is told to take over.",
        "G1, G3: the sale goes on at the replica, and with the fence nothing is sold twice.",
    ),
    Case(
        "F24",
        "A slot of Redis Cluster moves while its lock is held and waited for.",
        "G5: the hold and its queue move along, and the sale is exact without the fence.",
    ),
    Case(
        "F25",
        "Some of the five servers of Redlock die, stand still, or lose their data.",
        "G1, G4: less than a majority is an error. If two hold one lock, the later one's fence is larger.",
    ),
    # -- ZooKeeper ---------------------------------------------------------------------------------
    Case(
        "F26",
        "The leader of ZooKeeper dies, or the follower that a client is connected to.",
        "G1, G3: the lock and its queue stay, and the sale is exact without the fence.",
    ),
    Case(
        "F27",
        "Two of three servers of ZooKeeper are down.",
        "G4: nothing is granted, and nothing is renewed.",
    ),
    Case(
        "F28",
        "A client loses its server of ZooKeeper, or the server stands still.",
        "G3, G7: the client uses another connection, or the holder is told before another gets the lock.",
    ),
    Case(
        "F29",
        "Another client takes over a session with ZooKeeper and closes it.",
        "G1, G7: the lock counts as lost, and a waiter waits again in a new session.",
    ),
    Case(
        "F30",
        "A disk of ZooKeeper is full, or its data is gone.",
        "G1: the server is used again. A fence that fell behind is refused, and `FENCE_EPOCH` is the remedy.",
    ),
    # -- databases ---------------------------------------------------------------------------------
    Case(
        "F31",
        "The database ends the holder's connection, or stops during COMMIT.",
        "G1, G7: no order is half done, the holder is told, and a repeated request finds its order.",
    ),
    Case(
        "F32",
        "The holder's connection to the database is dead, and the database does not know.",
        "G3: if the database has a limit for idle transactions, it ends this one, and the next process gets "
        "the lock.",
    ),
    Case(
        "F33",
        "A process stands still between the fence and COMMIT, and keeps the row locked.",
        "G3: others get 423 after their `TIMEOUT`. A limit that you set in the database ends the "
        "transaction.",
    ),
    Case(
        "F34",
        "The database, or its pool, has no connection left.",
        "G3: waiters leave the connections to the holder, or try again until their `TIMEOUT`.",
    ),
    Case(
        "F35",
        "The database ends a transaction: a deadlock, a conflict, a limit, a full disk.",
        "G1: the whole transaction is rolled back, and the answer or the error says so.",
    ),
    Case(
        "F36",
        "A standby of PostgreSQL that lags behind takes over.",
        "G1: stock and fences, rows of one database, fall back to the same moment.",
    ),
    Case(
        "F37",
        "PgBouncer stands before the database and pools transactions.",
        "G4: locks that belong to a session are refused there, and the error says what to set.",
    ),
    # -- a site ------------------------------------------------------------------------------------
    Case(
        "F38",
        "A client goes away while it waits, its request is sent twice, or its worker dies.",
        "G3: an async view leaves the queue. A purchase that is repeated with its key is one order.",
    ),
    Case(
        "F39",
        "10,000 requests wait for one name, 100,000 names are used, or clients send slowly.",
        "G6: requests above the cap are refused at once, other names are served, and nothing stays behind.",
    ),
    Case(
        "F40",
        "A worker has no memory left, or no descriptors, or a host name can't be resolved.",
        "G4: the error says what has run out, and the next lock is granted when it is there again.",
    ),
    Case(
        "F41",
        "Carts lock several products in different orders, and one process dies halfway.",
        "G3: no two carts wait for each other for ever.",
    ),
    Case(
        "F42",
        "A shop moves from one lock service to another while it sells.",
        "G1: nothing is sold twice, and an older epoch is refused.",
    ),
    Case(
        "F43",
        "The machine is suspended for longer than a lease.",
        "G7: the suspended time counts, so the holder finds its lock lost.",
        "No test suspends a machine: a cgroup freezes the processes, and a time namespace moves their clock.",
    ),
)

PAGE = MarkedPage("fault", "what goes wrong", FAULTS)

if __name__ == "__main__":
    PAGE.write()

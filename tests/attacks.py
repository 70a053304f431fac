"""What people who mean harm may try, as data, and the page that names its tests.

Run ``python -m tests.attacks`` when a mark in the tests or a sentence below has changed: it writes the table
of the page. `tests.marked_pages` says what a mark means.
"""

from __future__ import annotations

from tests.marked_pages import Case, MarkedPage

ATTACKS = (
    # -- names that a client chooses ---------------------------------------------------------------
    Case(
        "A01",
        "An id ends in what looks like an entry in the queue of another lock, to block that lock for ever.",
        "The id is a name of its own, and the other lock can be taken.",
    ),
    Case(
        "A02",
        "An id with a slash, `1/2`, reaches a place below another lock.",
        "Different names are different locks, in every lock service.",
    ),
    Case(
        "A03",
        "An id leads out of the place of the locks: `..`, `.`, `a/../b`.",
        "The id is a name like any other, and nothing is written elsewhere. A `slug` or an `int` is a 400.",
    ),
    Case(
        "A04",
        "A client makes up an HTTP method to run the view without its lock.",
        "No method runs without the lock what another method runs under it, unless the guard lists methods.",
    ),
    Case(
        "A05",
        "An id has control characters, NUL, or characters that Unicode has not assigned.",
        "The answer is 400, and the lock service is not asked.",
    ),
    Case(
        "A06",
        "An id has an emoji, or other characters beyond the first 65,536.",
        "It is a lock like any other, in every lock service.",
    ),
    Case(
        "A07",
        "JSON has a lone surrogate, which can't be sent to any server.",
        "The answer is 400, and all other locks of the process go on.",
    ),
    Case(
        "A08",
        "One product is spelled in several ways that the database takes for equal: accents, case, blanks.",
        "The view gets the value that is locked. Blanks around text are stripped. Text keeps its case and "
        "accents. If the database ignores them, a function as the name locks the row's number instead.",
    ),
    Case(
        "A09",
        "One number is spelled in several ways: `01`, `+1`, `1.0`, `1_0`, or other digits.",
        "One spelling is accepted, and all others get 400.",
    ),
    Case(
        "A10",
        "An id is empty, so that one lock would serve all products.",
        "The answer is 400.",
    ),
    Case(
        "A11",
        "An id is missing, `null`, a list or an object.",
        "The answer is 400. A field that the view does not have is an error at import.",
    ),
    Case(
        "A12",
        "An id is written as a format string or as a template: `{0.__class__}`, `%s`, `<int:id>`.",
        "It is text. A template that was meant as a format string is refused at import.",
    ),
    Case(
        "A13",
        "A name has a million characters, or a body 512 MB.",
        "The answer is 400, and the lock service is not asked. The framework refuses a body that is too "
        "large.",
    ),
    Case(
        "A14",
        "An id has braces, to move a part of the lock's keys to another slot of Redis Cluster.",
        "All keys of a lock are in the slot of its name.",
    ),
    Case(
        "A15",
        "A client takes another route to a view whose lock belongs to one route.",
        "The other route is reported, by a check in Django and at the first request in Flask.",
    ),
    Case(
        "A16",
        "A name, or the text with which a holder describes itself, has control characters.",
        "Names with control characters are 400. What is logged and shown is printable.",
    ),
    Case(
        "A17",
        "A search on the pages for operators is a pattern: `*`, `?`, `[a-z]`.",
        "It is compared letter by letter, and no command reads all keys of Redis at once.",
    ),
    Case(
        "A18",
        "A client asks for 100,000 ids that do not exist.",
        "G6: each costs a lock while it is used, and nothing stays behind on the lock service.",
        "Only Redis has 100,000 names in a test; files have 10,000. The table of the fence keeps its rows "
        "until `prune`.",
    ),
    Case(
        "A19",
        "Two names have the same 32-bit hash, which many advisory locks of PostgreSQL are made from.",
        "They are two locks.",
    ),
    # -- who may, and how many ---------------------------------------------------------------------
    Case(
        "A20",
        "A client without a login or a permission stands in the queue of a lock, or holds it.",
        "A client that the framework or a permission turns away asks for no lock.",
    ),
    Case(
        "A21",
        "A flood of requests for one name.",
        "G6: requests above the cap are 503 at once, and threads are left for other names.",
    ),
    Case(
        "A22",
        "A client waits for a lock, disconnects and begins anew, again and again.",
        "G3: an async view leaves the queue at once, a sync view after its `TIMEOUT`.",
    ),
    Case(
        "A23",
        "A header, a query, a form or a cookie asks for a longer wait.",
        "Only the settings and the guard say how long a request waits.",
    ),
    Case(
        "A24",
        "A client sends its body one byte at a time while its request holds a lock.",
        "The body is read before the lock is taken, up to `DISTLOCK_BODY_BEFORE_LOCK`.",
    ),
    Case(
        "A25",
        "A client reads a streamed answer slowly while its request holds the lock.",
        "The lock is released before anything is sent, and the log says so. Flask builds a stream in its "
        "context under the lock.",
    ),
    Case(
        "A26",
        "Two endpoints lock the same two names in opposite orders.",
        "G3: one request gets 423 early, and the other one goes on.",
    ),
    Case(
        "A27",
        "A view that holds a lock calls itself through HTTP, and waits for itself.",
        "G3: the inner request gets 423 after its `TIMEOUT`, and the outer one goes on.",
    ),
    Case(
        "A28",
        "A browser or a crawler reads a locked address ahead, with GET or HEAD.",
        "A rule, or a guard on a class, locks only methods that change something. A guard on a function "
        "locks every method.",
    ),
    Case(
        "A29",
        "A purchase is sent several times at once with one idempotency key.",
        "There is one order, and every answer tells the same.",
    ),
    Case(
        "A30",
        "An idempotency key is used again for another purchase.",
        "The answer is 422, and nothing is ordered.",
    ),
    # -- operators ---------------------------------------------------------------------------------
    Case(
        "A31",
        "Somebody without a permission opens the pages for operators.",
        "The pages of Django want the staff's login and a permission. Those of Flask don't exist until the "
        "site says who may.",
    ),
    Case(
        "A32",
        "A link, or a form of another site, has an operator's browser break a lock.",
        "Only a POST from the page itself breaks a lock; others get 403 or 405.",
    ),
    Case(
        "A33",
        "An operator breaks the lock of a holder that lives.",
        "G1, G7: the holder is told, its fenced transaction is rolled back, and the log names the operator.",
    ),
    Case(
        "A34",
        "A name, or the name of a host, is HTML, which the pages for operators show.",
        "It is text wherever it is shown.",
    ),
    # -- secrets -----------------------------------------------------------------------------------
    Case(
        "A35",
        "A client reads from a refusal who holds the lock, where, and with which fence.",
        "Outside of debug mode every refusal of a kind is the same, for all names and all holders.",
        "A 423 shows that the lock is taken. No test compares how long the answers take.",
    ),
    Case(
        "A36",
        "Somebody forges the token of a holder, to release its lock.",
        "Only the token proves a hold. It has 128 random bits, and only its process and the "
        "lock service know it.",
    ),
    Case(
        "A37",
        "A wrong password, or a URL with one, is quoted by an error.",
        "No error, log, page or command shows a password.",
    ),
    Case(
        "A38",
        "Somebody listens on the network, or answers in the place of the server.",
        "TLS that the URL asks for never falls back to a connection without it. It verifies certificates "
        "unless the URL says otherwise, on MySQL only if the URL says so.",
        "No check reports that a server is reached without TLS.",
    ),
    Case(
        "A39",
        "Another user of the lock service changes what is ours.",
        "The rights that a page lists are enough. With a login, nobody else may change ZooKeeper's "
        "nodes. The holder of a lost lock is told.",
    ),
    # -- beyond the list ---------------------------------------------------------------------------
    Case(
        "A40",
        "A client sends the same purchase in parallel, to spend what was read before the lock several times.",
        "The user and the session are read again under the lock.",
    ),
    Case(
        "A41",
        "Two values run together: `x_y` and `z` make the same name as `x` and `y_z`.",
        "A check in Django, and the first request in Flask, report the template and the line to write.",
    ),
    Case(
        "A42",
        "Another program writes strange data where the lock service keeps ours.",
        "G4: the error says what is there and what to do, in time, or the data is repaired.",
    ),
    Case(
        "A43",
        "Something between a process and its lock service cuts, doubles, reorders or makes up answers.",
        "G3, G4: the error comes in time. Nothing large is allocated, nothing is granted that the "
        "server does not know of, and nothing stays held.",
        "PostgreSQL, MariaDB and MySQL number no answers: a copy that arrives after the next statement was "
        "sent is believed. TLS keeps others from making copies.",
    ),
    Case(
        "A44",
        "Another user of the host plants links or files in the directory of the locks.",
        "The directory is refused, or nothing is written through what was planted.",
    ),
)

PAGE = MarkedPage("attack", "what is tried", ATTACKS)

if __name__ == "__main__":
    PAGE.write()

"""A view that is slower than its rush: a request that would wait in vain is told so early."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.buyers import PurchaseAnswer, buy_with_answers, percentile, together
from tests.web.flood_server import Server

#: A purchase holds for so long, and is waited for at most so long, seconds.
HOLD, TIMEOUT = 0.4, 2.0
BUYERS = 24
SECONDS = 9.0


def flood(folder: Path, **words: object) -> list[PurchaseAnswer]:
    """What buyers of one product are answered by two processes, after the first TIMEOUT."""
    answers: list[PurchaseAnswer] = []
    servers = [
        Server(framework, folder, hold=HOLD, timeout=TIMEOUT, **words) for framework in ("django", "flask")
    ]
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.running())

        def rush(server: Server) -> None:
            answers.extend(buy_with_answers(server.port, "/buy/1", BUYERS, seconds=SECONDS, again_after=0.2))

        together([lambda server=server: rush(server) for server in servers])  # type: ignore[misc]
    return [answer for answer in answers if answer.at > TIMEOUT]


def share_in_vain(answers: Sequence[PurchaseAnswer]) -> float:
    in_vain = sum(answer.in_vain for answer in answers)
    return in_vain / (in_vain + sum(answer.sold for answer in answers))


@pytest.mark.attack("A21")
# It is judged by how many come and go in its time.
@pytest.mark.alone
def test_behind_a_slow_view_who_would_wait_in_vain_is_refused_early(tmp_path: Path) -> None:
    answers = flood(tmp_path)
    assert {answer.status for answer in answers} <= {200, 423, 503}
    assert share_in_vain(answers) < 0.25
    refused = [answer for answer in answers if answer.refused]
    assert len(refused) > len(answers) / 2
    # They have not waited: most of them hear it in a fraction of the time, also where the machine is busy.
    assert percentile(refused, 0.5) < TIMEOUT / 4
    # And the lock was hardly ever idle for want of somebody to take it.
    assert sum(answer.sold for answer in answers) > (SECONDS - TIMEOUT) / HOLD / 3


@pytest.mark.attack("A21", control=True)
def test_the_control_that_stores_everybody_lets_most_wait_in_vain(tmp_path: Path) -> None:
    answers = flood(tmp_path, admits_all=True)
    assert not any(answer.refused for answer in answers)
    assert share_in_vain(answers) > 0.5

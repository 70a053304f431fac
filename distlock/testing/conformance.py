"""The conformance kit: one suite for every backend, ours and yours.

Subclass its parts in a test module and give them a fixture ``url``::

    from distlock.testing import conformance

    @pytest.fixture
    def url():
        return "mine://localhost"

    class TestProtocol(
        conformance.ProtocolConformance, conformance.NumberConformance, conformance.LeaseConformance
    ):
        pass  # and PostingConformance, if releases need not be awaited; HandingConformance, if a push may
        # be acknowledged later; AwaitingConformance, if event loops can ask; ReadConformance and
        # PermitConformance, if several may hold a key, each with its part for leases

    class TestThreads(conformance.ThreadConformance):
        pass

A fixture ``options`` in the class gives keyword arguments of `distlock.connect`; for the protocol's part
those of the backend.
"""

from __future__ import annotations

from distlock.testing.awaiting import AwaitingConformance
from distlock.testing.carts import CartConformance
from distlock.testing.closing import CloseConformance
from distlock.testing.floors import FloorConformance
from distlock.testing.handing import HandingConformance
from distlock.testing.inspection import InspectionConformance, UnfairInspectionConformance
from distlock.testing.killed import KilledConformance
from distlock.testing.latch_waiting import LatchConformance
from distlock.testing.latches import LatchProtocolConformance
from distlock.testing.leases import LeaseConformance, PermitLeaseConformance, ReadLeaseConformance
from distlock.testing.notifying import NotifyConformance
from distlock.testing.permits import PermitConformance
from distlock.testing.posting import PostingConformance
from distlock.testing.processes import (
    ProcessConformance,
    ProcessLeaseConformance,
    UnfairProcessConformance,
    UnfairProcessLeaseConformance,
)
from distlock.testing.protocol import NumberConformance, ProtocolConformance, UnfairProtocolConformance
from distlock.testing.readers import ReadConformance
from distlock.testing.revocation import RevocationConformance
from distlock.testing.semaphores import SemaphoreConformance
from distlock.testing.sharing import SharingConformance
from distlock.testing.threads import ThreadConformance, UnfairThreadConformance
from distlock.testing.troubles import TroubleConformance

__all__ = [
    "AwaitingConformance",
    "CartConformance",
    "CloseConformance",
    "FloorConformance",
    "HandingConformance",
    "InspectionConformance",
    "KilledConformance",
    "LatchConformance",
    "LatchProtocolConformance",
    "LeaseConformance",
    "NotifyConformance",
    "NumberConformance",
    "PermitConformance",
    "PermitLeaseConformance",
    "PostingConformance",
    "ProcessConformance",
    "ProcessLeaseConformance",
    "ProtocolConformance",
    "ReadConformance",
    "ReadLeaseConformance",
    "RevocationConformance",
    "SemaphoreConformance",
    "SharingConformance",
    "ThreadConformance",
    "TroubleConformance",
    "UnfairInspectionConformance",
    "UnfairProcessConformance",
    "UnfairProcessLeaseConformance",
    "UnfairProtocolConformance",
    "UnfairThreadConformance",
]

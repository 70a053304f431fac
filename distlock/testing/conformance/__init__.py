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
        # be acknowledged later; AwaitingConformance, if event loops can make calls; ReadConformance and
        # PermitConformance, if several may hold a key, each with its part for leases

    class TestThreads(conformance.ThreadConformance):
        pass

A fixture ``options`` in the class returns keyword arguments for `distlock.connect`, or, in the parts that
test the protocol, for the backend.
"""

from __future__ import annotations

from distlock.testing.conformance.closing import CloseConformance
from distlock.testing.conformance.latches import LatchConformance
from distlock.testing.conformance.locks import CartConformance, ThreadConformance, UnfairThreadConformance
from distlock.testing.conformance.processes import (
    KilledConformance,
    ProcessConformance,
    ProcessLeaseConformance,
    UnfairProcessConformance,
    UnfairProcessLeaseConformance,
)
from distlock.testing.conformance.protocol_exclusive import (
    FloorConformance,
    LeaseConformance,
    NumberConformance,
    ProtocolConformance,
    UnfairProtocolConformance,
)
from distlock.testing.conformance.protocol_latches import LatchProtocolConformance
from distlock.testing.conformance.protocol_operators import (
    InspectionConformance,
    NotifyConformance,
    UnfairInspectionConformance,
)
from distlock.testing.conformance.protocol_optional import (
    AwaitingConformance,
    HandingConformance,
    PostingConformance,
)
from distlock.testing.conformance.protocol_permits import PermitConformance, PermitLeaseConformance
from distlock.testing.conformance.protocol_readers import ReadConformance, ReadLeaseConformance
from distlock.testing.conformance.release_requests import RevocationConformance
from distlock.testing.conformance.shared_locks import SemaphoreConformance, SharingConformance
from distlock.testing.conformance.troubles import TroubleConformance

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

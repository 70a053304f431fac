"""The conformance kit: one suite for every backend, ours and yours.

Subclass its parts in a test module and give them a fixture ``url``::

    from distlock.testing import conformance

    @pytest.fixture
    def url():
        return "mine://localhost"

    class TestProtocol(
        conformance.ProtocolConformance, conformance.NumberConformance, conformance.LeaseConformance
    ):
        pass  # and conformance.PostingConformance, if releases need not be awaited

    class TestThreads(conformance.ThreadConformance):
        pass

A fixture ``options`` in the class gives keyword arguments of `distlock.connect`; for the protocol's part
those of the backend.
"""

from __future__ import annotations

from distlock.testing.carts import CartConformance
from distlock.testing.closing import CloseConformance
from distlock.testing.floors import FloorConformance
from distlock.testing.inspection import InspectionConformance
from distlock.testing.posting import PostingConformance
from distlock.testing.processes import ProcessConformance, ProcessLeaseConformance
from distlock.testing.protocol import LeaseConformance, NumberConformance, ProtocolConformance
from distlock.testing.threads import ThreadConformance
from distlock.testing.troubles import TroubleConformance

__all__ = [
    "CartConformance",
    "CloseConformance",
    "FloorConformance",
    "InspectionConformance",
    "LeaseConformance",
    "NumberConformance",
    "PostingConformance",
    "ProcessConformance",
    "ProcessLeaseConformance",
    "ProtocolConformance",
    "ThreadConformance",
    "TroubleConformance",
]

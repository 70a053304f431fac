from __future__ import annotations

import secrets

import pytest

from distlock.testing import conformance


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


class TestProtocol(
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.LeaseConformance,
    conformance.HandingConformance,
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
):
    pass


class TestFloor(conformance.FloorConformance):
    pass


class TestInspection(conformance.InspectionConformance):
    pass


class TestNotify(conformance.NotifyConformance):
    pass


class TestRevocation(conformance.RevocationConformance):
    pass


class TestClose(conformance.CloseConformance):
    pass


class TestThreads(conformance.ThreadConformance):
    pass


class TestSharing(conformance.SharingConformance):
    pass


class TestSemaphores(conformance.SemaphoreConformance):
    pass


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    pass


class TestLatchProtocol(conformance.LatchProtocolConformance):
    pass


class TestLatches(conformance.LatchConformance):
    pass

from __future__ import annotations

import secrets

import pytest

from distlock.testing import conformance


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


class TestProtocol(
    conformance.ProtocolConformance, conformance.NumberConformance, conformance.LeaseConformance
):
    pass


class TestFloor(conformance.FloorConformance):
    pass


class TestInspection(conformance.InspectionConformance):
    pass


class TestClose(conformance.CloseConformance):
    pass


class TestThreads(conformance.ThreadConformance):
    pass


class TestCarts(conformance.CartConformance):
    pass


class TestTroubles(conformance.TroubleConformance):
    pass

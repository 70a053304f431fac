"""What a backend declares decides: what it can't do is refused where somebody asks for it."""

from __future__ import annotations

import pytest

import distlock
from distlock.backends.base import Capabilities
from distlock.backends.registry import capabilities_of
from distlock.web.decorator import Told
from distlock.web.own_transactions import refuse_unfit
from distlock.web.settings.aliases import AliasSettings, read
from distlock.web.settings.clients import fence_for, make_client, warn_if_alone
from tests.backend_class import backend_class

MemoryBackend = backend_class("memory://")

HERE = "tests.backends.test_capabilities"


class Unnumbered(MemoryBackend):
    capabilities = Capabilities(several_processes=True, lease=True)


class SaysNothing(MemoryBackend):
    capabilities = None  # type: ignore[assignment]


def settings(backend: str = "Unnumbered", **more: object) -> AliasSettings:
    one = {"BACKEND": f"{HERE}.{backend}", "LOCATION": "memory://x", **more}
    return read({"default": one})["default"]


def told(**words: object) -> Told:
    return Told(["product_<int:id>"], **words)


def test_a_capability_that_is_not_declared_is_not_there() -> None:
    assert capabilities_of(f"{HERE}.Unnumbered") == Capabilities(several_processes=True, lease=True)
    assert Capabilities() == Capabilities(several_processes=False, lease=False, fence=False)


@pytest.mark.parametrize(
    "scheme",
    [
        *("memory", "file", "redis", "rediss", "unix", "zookeeper", "postgresql", "mysql"),
        *("redis+sentinel", "rediss+sentinel", "redis+cluster", "redlock", "redlocks"),
    ],
)
def test_ours_number_their_locks(scheme: str) -> None:
    assert capabilities_of(scheme).fence
    assert capabilities_of(scheme).several_processes == (scheme != "memory")


def test_a_backend_has_to_say_what_it_can_do() -> None:
    with pytest.raises(distlock.ConfigurationError, match=r"does not say what it can do.*Capabilities\(…\)"):
        distlock.connect("memory://x", backend=f"{HERE}.SaysNothing")


def test_a_fence_in_the_settings_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    make_client(settings()).close()
    refused = r"^DISTLOCK\['default'\]: FENCE can't be had from .*Unnumbered'.*Leave the fence out"
    for words in ({"FENCE": True}, {"FENCE": "shop", "ON_BACKEND_DOWN": "run"}):
        with pytest.raises(distlock.ConfigurationError, match=refused):
            make_client(settings(**words))


def test_a_fence_of_a_decorator_is_refused() -> None:
    assert fence_for(settings(), told()) is False
    assert fence_for(settings(), told(fence=False)) is False
    refused = r'^distributed_lock\("product_<int:id>", fence=True\) can\'t be had from .*Unnumbered'
    with pytest.raises(distlock.ConfigurationError, match=refused):
        fence_for(settings(), told(fence=True))
    assert fence_for(read("memory://x")["default"], told(fence=True)) is True


@pytest.mark.parametrize("names", [["product_1"], ["product_1", "product_2"]])
def test_a_transaction_of_ones_own_is_refused(names: list[str]) -> None:
    locks = distlock.connect("memory://x", backend=f"{HERE}.Unnumbered")
    with (
        locks.lock(*names) as grant,
        pytest.raises(
            distlock.ConfigurationError, match=r"^atomic\(grant\) can't be had from .*'Unnumbered'"
        ),
    ):
        refuse_unfit("atomic(grant)", grant)
    locks.close()
    numbered = distlock.connect("memory://x")
    with numbered.lock(*names) as grant:
        refuse_unfit("atomic(grant)", grant)
    numbered.close()


class Alone(MemoryBackend):
    capabilities = Capabilities(lease=True, fence=True)


def test_what_keeps_no_other_process_out_is_told_also_of_a_dotted_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_if_alone(settings())
    assert not caplog.messages
    warn_if_alone(settings("Alone"))
    assert "Alone backend outside of debug mode: each process has locks of its own" in caplog.text

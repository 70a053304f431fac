from __future__ import annotations

import pytest

from demo_shop.configuration import Configuration


def test_what_one_process_tells_another_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Configuration(fence=True, commit_pause=0.5, stall="django-1:read:8000")
    for name, text in told.to_environment().items():
        monkeypatch.setenv(name, text)
    assert Configuration.from_environment() == told


@pytest.mark.parametrize(
    ("text", "fence"), [("1", True), ("yes", True), ("True", True), ("0", False), ("off", False), ("", False)]
)
def test_the_fence_is_switched_as_people_write_it(
    text: str, fence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_FENCE", text)
    assert Configuration.from_environment().distlock()["default"]["FENCE"] is fence


def test_a_switch_that_is_neither_on_nor_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_FENCE", "maybe")
    with pytest.raises(SystemExit, match="'maybe' is neither on nor off: write 1 or 0"):
        Configuration.from_environment()

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def sell(port: int, guard: str) -> dict[str, Any]:
    module = "tests.django_distlock.atomic_project"
    done = subprocess.run(
        [sys.executable, "-m", module, str(port), guard], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_under_atomic_requests_64_posts_sell_the_40_pieces_and_no_more(postgres: int) -> None:
    guarded = sell(postgres, "distributed")
    ruled = sell(postgres, "rule")
    fenced = sell(postgres, "fence")
    # The control differs only in letting go when the decorator returns, which is before COMMIT.
    control = sell(postgres, "control")

    assert guarded == ruled == fenced == {"sold": 40, "left": 0, "answers": {"200": 40, "409": 24}}
    assert control["sold"] > 40


def test_class_based_views_and_those_of_rest_framework_sell_no_more_either(postgres: int) -> None:
    by_class = sell(postgres, "class")
    rest = sell(postgres, "rest")
    # Differs only in letting go when the method returns, which is before COMMIT.
    control = sell(postgres, "rest control")

    assert by_class == rest == {"sold": 40, "left": 0, "answers": {"200": 40, "409": 24}}
    assert control["sold"] > 40

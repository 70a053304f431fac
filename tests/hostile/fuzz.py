"""How many examples a fuzzer draws: few, and the same in each run, or many that nobody has seen before."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def examples(count: int, shrinks: bool = True) -> settings:
    """Return the settings of a fuzzer with *count* examples, or more with ``--hypothesis-profile=long``.

    *shrinks*: whether an example that fails is made smaller. With real servers that takes very long.
    """
    times = settings().max_examples // 100
    return settings(
        max_examples=count * times,
        derandomize=times == 1,
        phases=[*Phase] if shrinks else [Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

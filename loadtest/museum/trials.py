"""Which scene breaks which exhibit, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from demo_shop.museum.process_anew import ProcessAnew
from demo_shop.museum.redis_step_0 import RedisStep0
from demo_shop.museum.redis_step_1 import RedisStep1
from demo_shop.museum.redis_step_2 import RedisStep2
from demo_shop.museum.redis_step_3 import RedisStep3
from demo_shop.museum.redis_step_4 import RedisStep4
from demo_shop.museum.redis_step_5 import RedisStep5
from loadtest.museum import herd, scenes
from loadtest.museum.benches import Bench, control, on_redis, on_zookeeper


@dataclass(frozen=True, slots=True)
class Trial:
    #: A key of `demo_shop.museum.exhibits.EXHIBITS`.
    exhibit: str
    bench: Callable[[str], Bench]
    scene: Callable[[Bench], int]
    #: What the scene counts, and how much of it the exhibit does.
    unit: str
    damage: int
    #: Whether the scene nests, so that distlock's re-entrant lock is its control.
    nested: bool = False

    @property
    def name(self) -> str:
        return f"{self.exhibit}: {self.scene.__name__.replace('_', ' ')}"

    @property
    def service(self) -> str:
        """Where it runs. A process lock needs none, and its control is the lock on Redis."""
        return "zookeeper" if self.bench is on_zookeeper else "redis"

    def try_exhibit(self, url: str) -> int:
        with self.bench(url) as bench:
            return self.scene(bench)

    def try_distlock(self, url: str) -> int:
        with control(url, self.nested) as bench:
            return self.scene(bench)


TWICE, REFUSED, MET, DELETED, BLOCKED, IN_VAIN, OVERTAKEN = (
    "units sold twice",
    "buyers refused",
    "let in beside a holder",
    "lock deleted under its holder",
    "seconds blocked by oneself",
    "buyers woken in vain",
    "buyers overtaken",
)
TRIALS = (
    Trial("process-anew", on_redis(lambda *_: ProcessAnew()), scenes.all_in_one_process, TWICE, 9),
    Trial("redis-step-0", on_redis(RedisStep0), scenes.everybody_at_once, REFUSED, 9),
    Trial("redis-step-0", on_redis(RedisStep0), scenes.stranger_releases, MET, 1),
    Trial("redis-step-1", on_redis(RedisStep1), scenes.thinks_too_long, TWICE, 3),
    Trial("redis-step-2", on_redis(RedisStep2), scenes.thinks_too_long, TWICE, 1),
    Trial("redis-step-2", on_redis(RedisStep2), scenes.slow_answer_at_release, MET, 1),
    Trial("redis-step-2", on_redis(RedisStep2), scenes.shared_object, DELETED, 1),
    Trial("redis-step-3", on_redis(RedisStep3), scenes.outlives_all_renewals, TWICE, 1),
    Trial("redis-step-3", on_redis(RedisStep3), scenes.slow_answer_at_renewal, MET, 1),
    Trial("redis-step-4", on_redis(RedisStep4), scenes.nested_call, BLOCKED, 2, nested=True),
    Trial("redis-step-5", on_redis(RedisStep5), scenes.second_name, MET, 1, nested=True),
    Trial("redis-step-5", on_redis(RedisStep5), scenes.enters_again_too_late, MET, 1, nested=True),
    Trial("zookeeper-unfair", on_zookeeper, herd.ten_in_line, IN_VAIN, 45),
    Trial("zookeeper-unfair", on_zookeeper, herd.last_comes_first, OVERTAKEN, 3),
)

"""What can go wrong in a world, and when it has gone wrong for good."""

from __future__ import annotations

from collections.abc import Iterator

from distlock.backends.base import EXCLUSIVE
from tests.histories.actions import HINT, Actions
from tests.histories.process import PATIENCE
from tests.histories.services import Push
from tests.histories.world import MOST, Proc, Step, World, with_process

#: Seconds of a turn, and a little.
TURN = 0.06

#: The faults, and what each of them does.
FAULTS = {
    "time-out": "the time of the callers with a time-out is over",
    "lost push": "a push never arrives, and the connection looks well",
    "broken connection": "the pushes under way are lost, and the process learns that some may be missing",
    "interrupt": "an exception is thrown into a caller; the lock service has not seen its call",
    "late interrupt": "so, and the lock service carries the call out later",
    "cancel": "an exception is thrown into a caller whose call, if any, was carried out",
    "drop": "a caller's generator is closed",
    "lost request": "a call fails, and the lock service has not seen it",
    "late request": "a call fails, and the lock service carries it out later",
    "lost answer": "a call fails that the lock service has carried out",
    "lost release": "nothing is known of a release that was sent, which may have been carried out",
    "crash": "a process ends without a word",
    "stop": "a process stands still, and goes on at any time, also after its leases",
    "session": "the session of a process ends at the lock service",
    "turn": "a turn passes between two steps",
}


class Rules(Actions):
    """All that can happen, with faults."""

    def steps(self, world: World) -> list[Step]:
        """Return all that can happen next."""
        found = self.without_faults(world)
        return [*found, *self._faults(world)] if world.left else found

    # -- faults ----------------------------------------------------------------------------------

    def _faults(self, world: World) -> Iterator[Step]:
        for kind, step in self._all_faults(world):
            if kind in self.faults:
                action = (kind, *step.action[1:])
                yield step._replace(action=action, world=step.world._replace(left=world.left - 1, fault=kind))

    def _all_faults(self, world: World) -> Iterator[tuple[str, Step]]:
        if self.timed and "time-out" in self.faults:
            yield "time-out", self.after(world, PATIENCE, ("", 0, 0))
        if "turn" in self.faults:
            yield "turn", self.after(world, TURN, ("", 0, 0))
        for number, proc in enumerate(world.procs):
            if proc.status != "lives":
                continue
            yield "crash", Step(("", number, 0), self._crashed(world, number))
            yield (
                "stop",
                Step(("", number, 0), with_process(world, number, proc._replace(status="stands still"))),
            )
            if self.family.sessions and "session" in self.faults:
                yield "session", self._session_ends(world, number)
            if proc.inbox:
                yield (
                    "lost push",
                    Step(("", number, 0), with_process(world, number, proc._replace(inbox=proc.inbox[1:]))),
                )
                broken = with_process(world, number, proc._replace(inbox=(_MISSED,)))
                yield "broken connection", Step(("", number, 0), broken)
            if proc.posted and "lost release" in self.faults:
                yield "lost release", self.release_arrives(world, number, None)
                about = proc.posted[0]
                unsent = with_process(world, number, proc._replace(posted=proc.posted[1:]))
                event = ("reply", self.named(unsent, number, about[0], True), None)
                yield "lost release", self.played(unsent, ("", number, 1), event, (), number)
            yield from self._faults_of_tasks(world, number)

    def _faults_of_tasks(self, world: World, number: int) -> Iterator[tuple[str, Step]]:
        faults, before = self.faults, world
        for place, view in enumerate(self.node(world, number).tasks):
            world, task, proc = before, place, before.procs[number]
            action = ("", number, task)
            if view.call == "post" and proc.answers[task] is None:
                # It was never sent, so no answer to it will be heard.
                token = self.about(world, number, task)[0][0]
                event = ("reply", self.named(world, number, token, True), True)
                step = self.played(world, action, event, (), number)
                world, task = step.world, step.tasks.index(task)
                proc = world.procs[number]
            if view.at == "park" and view.what and view.came:
                if "cancel" in faults and self.scene.tasks:
                    yield "cancel", self.local(world, action, ("throw", task))
                if "interrupt" in faults and not self.scene.tasks:
                    yield "interrupt", self.local(world, action, ("throw", task))
                if "drop" in faults:
                    yield "drop", self.local(world, action, ("close", task))
            elif view.at == "call" and proc.answers[task] is None:
                if "lost request" in faults:
                    yield "lost request", self.local(world, action, ("fail", task))
                if "lost answer" in faults and self.whole and view.call != "post":
                    after, tasks = self.served(world, number, task)
                    yield "lost answer", self.local(after, action, ("fail", tasks.index(task)))
                sent = with_process(
                    world,
                    number,
                    proc._replace(late=(*proc.late, (view.call, self.about(world, number, task)))),
                )
                late = self.family.late and view.call not in ("settle", "post", "renew", "acknowledge")
                if late and "late request" in faults:
                    yield "late request", self.local(sent, action, ("fail", task))
                if view.what and not self.scene.tasks:
                    if "interrupt" in faults:
                        yield "interrupt", self.local(world, action, ("throw", task))
                    if late and "late interrupt" in faults:
                        yield "late interrupt", self.local(sent, action, ("throw", task))
                if view.what and self.scene.tasks and self.whole and "cancel" in faults:
                    after, tasks = self.served(before, number, place)
                    yield "cancel", self.local(after, action, ("throw", tasks.index(task)))
            elif view.at == "call":
                if "lost answer" in faults and view.call != "post":
                    yield "lost answer", self.local(world, action, ("fail", task))
                if view.what and "cancel" in faults and self.scene.tasks:
                    yield "cancel", self.local(world, action, ("throw", task))
                if view.what and "drop" in faults:
                    yield "drop", self.local(world, action, ("close", task))

    def _crashed(self, world: World, number: int) -> World:
        proc = world.procs[number]
        dead = Proc("dead", 0, (), (None,) * len(proc.answers))
        world = with_process(world, number, dead)
        if self.family.lease and not self.family.sees_end:
            return world
        return self._without(world, number)

    def _without(self, world: World, number: int) -> World:
        """End all that a process has at the lock service."""
        service = world.service
        held, waits = [one[0] for one in service.holds], [one[0] for one in service.queue]
        tokens = frozenset(token for token in (*held, *waits) if token % MOST == number)
        service, pushes = self.model.without(service, tokens)
        return self.pushed(world._replace(service=service), pushes)

    def _session_ends(self, world: World, number: int) -> Step:
        """End the session of a process. Its backend tells of that, each family's in its own way."""
        held = [one for one in world.service.holds if one[0] % MOST == number]
        world = self._without(world, number)
        proc = world.procs[number]
        told: list[Push] = []
        if self.family.sees_end:
            for one in held:
                told.append(("ended", one[0], EXCLUSIVE, 0, 0.0, False))
                if one[6]:
                    told.append(("lost", one[0], EXCLUSIVE, 0, 0.0, False))
            told.append(HINT)
        else:
            told.append(_MISSED)
        ended = tuple(sorted({*proc.ended, *(one[4] for one in held)}))
        proc = proc._replace(inbox=(*proc.inbox, *told), ended=ended)
        return Step(("", number, 0), with_process(world, number, proc))

    # -- ends ------------------------------------------------------------------------------------

    def at_end(self, world: World) -> str:
        """Return what is wrong with a world in which nothing happens any more; "": nothing."""
        for number, proc in enumerate(world.procs):
            if proc.status == "dead":
                continue
            node = self.node(world, number)
            for view in node.tasks:
                if view.what and view.at != "done":
                    return f"a caller of process {number} gets no answer"
                if view.what and (why := self._unexpected(world, view.what, view.outcome)):
                    return f"a caller of process {number} {why}"
            if node.left:
                return f"process {number} still has {node.left}"
            for one in (*world.service.holds, *world.service.queue):
                if one[0] % MOST == number:
                    return f"the lock service still has {one[1]} of process {number}"
        return ""

    def _unexpected(self, world: World, what: str, outcome: str) -> str:
        timed, fault = what.islower(), world.fault
        fine = {
            "served": True,
            "timed out": timed,
            "refused": timed,
            "failed": fault in ("lost request", "late request", "lost answer", "lost release", "session"),
            "interrupted": fault in ("cancel", "interrupt", "late interrupt"),
            "dropped": fault == "drop",
        }
        return "" if fine.get(outcome, False) else f"was told {outcome or 'nothing'!r}"


#: The notification after which the process looks at all its requests and holds.
_MISSED: Push = ("missed", 0, EXCLUSIVE, 0, 0.0, False)

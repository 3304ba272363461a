"""Migration in six phases, with offsets (Synergy, section 3.2; EBS, section 4.2).

```
 responsible peer        source                          target
    1 decision ------------>|                               |
                            | 2 request ------------------->|  rehearses on a clone, without a sink
                            |<-------------------- 3 reply  |
          stops after a batch, releases its lease           |
                            | 4 update: epoch, position --->|  takes the next epoch, claims the topics,
                            |<------------- 5 update reply  |  continues from exactly there
    |<----------------- 6 end  drops the component          |
```

In the paper the update goes to the components upstream. Here those are not involved: components are connected by
topics, and the source's position in them is the sequence number of its last tuple. Until phase 4 the source continues
to run, and a failure does not change this. After phase 4, the peer that creates the next epoch in storage owns the
component: the target, or the source that takes it back, or, if both fail, a peer that a guardian chooses once the lease
has expired.
"""

from __future__ import annotations

import asyncio
import contextlib

from braided.errors import BraidedError, PeerError
from braided.fleet.agent import Agent
from braided.fleet.component_host import Job
from braided.fleet.lease_holder import LeaseHolder
from braided.fleet.leases import Lease, Position
from braided.fleet.load_watch import Move
from braided.fleet.messages import Contact, Done, Message, Ping, expect

REHEARSAL = 600.0
"""Seconds that a target may take to rehearse. The source continues to run, so a slow rehearsal costs nothing."""
START = 120.0
"""Seconds that a target may take to start: in this time the component does not run."""
_ATTEMPTS = 2  # to send a request or an update without a reply
_ASKED = 12  # how often within START a target is asked for its state: a failed one is abandoned after 40 s


class MigrationDecision(Message):
    """Phase 1: move a component to a target."""

    component: str
    target: Contact
    reason: str


class MigrationRequest(Message):
    """Phase 2: prepare to take over the component that the sender owns with this epoch."""

    component: str
    epoch: int


class MigrationReply(Message):
    """Phase 3: the target has rehearsed and is ready; or the reason why not, and whether it is still rehearsing."""

    ok: bool
    reason: str = ""
    is_under_way: bool = False


class MigrationUpdate(Message):
    """Phase 4: the sender has stopped; its epoch and its position."""

    component: str
    epoch: int
    position: Position


class MigrationUpdateReply(Message):
    """Phase 5: the target owns the component and runs it; or the reason why not."""

    ok: bool
    reason: str = ""


class MigrationEnd(Message):
    """Phase 6: whether the component has moved."""

    component: str
    ok: bool
    reason: str = ""


class Migrator:
    """Both sides of a migration, and the side of the peer that decided it. A peer takes part in one at a time.

    rehearsal, start : seconds that a target may take for either.
    """

    def __init__(
        self, agent: Agent, holding: LeaseHolder, *, rehearsal: float = REHEARSAL, start: float = START
    ) -> None:
        self._agent = agent
        self._holding = holding
        self._rehearsal = rehearsal
        self._start = start
        self._asked = start / _ASKED
        self.under_way: str | None = None
        """The component whose migration this peer takes part in."""
        self._rehearsing: dict[tuple[str, str, int], asyncio.Future[MigrationReply]] = {}
        self._ready: dict[str, tuple[str, int, Job]] = {}
        self._starting: dict[str, asyncio.Future[Message]] = {}
        self._ends: dict[tuple[str, str], asyncio.Future[MigrationEnd]] = {}
        agent.on(MigrationDecision, self._decided)
        agent.on(MigrationRequest, self._requested)
        agent.on(MigrationUpdate, self._updated)
        agent.on(MigrationEnd, self._ended)

    # The deciding peer.

    async def order(self, move: Move) -> bool:
        """Have a component moved; return whether it has moved, once this is known."""
        return (await self.carry_out(move)).ok

    async def carry_out(self, move: Move) -> MigrationEnd:
        """Have a component moved; return whether it has moved, or the reason why not."""
        key = (move.source.node, move.component)
        if key in self._ends:
            return MigrationEnd(move.component, False, "it is being moved")
        end: asyncio.Future[MigrationEnd] = asyncio.get_running_loop().create_future()
        self._ends[key] = end

        # The source needs time for a rehearsal, for a batch to end and for the target to start.
        ends = self._agent.machine.now() + self._rehearsal + (2 + _ATTEMPTS) * self._start
        try:
            before = await self._newest(move.component)
            decision = MigrationDecision(move.component, move.target, move.reason[:1000])
            reply = expect(await self._agent.ask(move.source, decision), Done)
            if reply is None or not reply.ok:
                why = reply.reason if reply else f"peer {move.source.name} does not answer"
                return MigrationEnd(move.component, False, why)
            while (report := await self._agent.within(end, self._asked)) is None:
                if self._agent.machine.now() >= ends:
                    return MigrationEnd(move.component, False, "no end was reported")
                now = await self._newest(move.component)
                if now is None or now == before or now.holder.node == move.source.node:
                    continue
                # The source reports this when it is sure. If it has failed, storage has the peer that continues.
                if await self._agent.ask(move.source, Ping()) is None and not end.done():
                    is_there = now.holder.node == move.target.node
                    why = "" if is_there else f"peer {move.source.name} has failed; {now.holder.name} continues"
                    return MigrationEnd(move.component, is_there, why)
            return report
        finally:
            del self._ends[key]

    async def _newest(self, component: str) -> Lease | None:
        with contextlib.suppress(BraidedError, OSError):
            return await self._agent.machine.blocking(self._holding.leases.newest, component)
        return None

    def _ended(self, sender: Contact, end: MigrationEnd) -> None:
        waiting = self._ends.get((sender.node, end.component))
        if waiting is not None and not waiting.done():
            waiting.set_result(end)

    # The source.

    def _decided(self, sender: Contact, decision: MigrationDecision) -> Message:
        held = self._holding.held(decision.component)
        if held is None or held.is_leaving:
            name = self._agent.contact.name
            return Done(
                False, f"component={decision.component!r}: does not run at {name} now; see braided fleet status"
            )
        if decision.target.node == self._agent.contact.node:
            return Done(False, f"component={decision.component!r}: is already here")
        if self.under_way is not None:
            return Done(False, f"a migration of {self.under_way} is under way: the first decision counts")
        self.under_way = decision.component
        self._agent.machine.spawn(self._migrate(sender, decision, held.job, held.lease.epoch))
        return Done()

    async def _migrate(self, decider: Contact, decision: MigrationDecision, job: Job, epoch: int) -> None:
        try:
            failure = await self._hand_over(decision, job, epoch)
        except (BraidedError, OSError) as error:
            failure = str(error)
        finally:
            self.under_way = None
        self._holding.note(job.name, failure or f"moved to {decision.target.name}: {decision.reason}")
        end = MigrationEnd(job.name, not failure, failure[:1000])
        if decider.node == self._agent.contact.node:
            self._ended(decider, end)
        else:
            self._agent.tell(decider, end)

    async def _hand_over(self, decision: MigrationDecision, job: Job, epoch: int) -> str:
        """Do phases 2 to 5; return why the component has not moved, the empty string if it has."""
        target = decision.target
        ready = await self._request(target, MigrationRequest(job.name, epoch))
        if ready is None or not ready.ok:
            return f"not moved to {target.name}: {ready.reason if ready else 'no reply to the request'}"
        position = await self._holding.give(job.name, state="starting")
        update = MigrationUpdate(job.name, epoch, position)
        for _ in range(_ATTEMPTS):
            answer = expect(await self._agent.ask(target, update, self._start / 2), MigrationUpdateReply)
            if answer is not None:
                break
        if answer is not None and answer.ok:
            return ""
        # Storage decides the owner: this peer, if it can create the next epoch.
        if not await self._holding.take_back(job, epoch, position):
            return ""
        return f"taken back from {target.name}: {answer.reason if answer else 'no reply to the update'}"

    async def _request(self, target: Contact, request: MigrationRequest) -> MigrationReply | None:
        """Ask a target to rehearse, and ask again while it reports that it does; None if it does not answer."""
        machine = self._agent.machine
        silences, ends = 0, machine.now() + self._rehearsal + self._start
        while silences < _ATTEMPTS and machine.now() < ends:
            reply = expect(await self._agent.ask(target, request, 2 * self._asked), MigrationReply)
            if reply is None:
                silences += 1
            elif reply.is_under_way:
                silences = 0
            else:
                return reply
        return None

    # The target.

    async def _requested(self, sender: Contact, request: MigrationRequest) -> Message:
        """Rehearse, and answer at the end; if it takes long, answer that it is under way."""
        name, key = request.component, (sender.node, request.component, request.epoch)
        if self._is_ready(sender, name, request.epoch):
            return MigrationReply(True)  # a repeated request
        if key not in self._rehearsing:
            if self.under_way is not None:
                return MigrationReply(False, f"a migration of {self.under_way} is under way at the target")
            self.under_way = name
            self._rehearsing[key] = asyncio.get_running_loop().create_future()
            self._agent.machine.spawn(self._rehearse(*key))
        reply = await self._agent.within(self._rehearsing[key], self._asked)
        return reply or MigrationReply(False, "it is rehearsing", is_under_way=True)

    async def _rehearse(self, node: str, name: str, epoch: int) -> None:
        machine, begun = self._agent.machine, self._agent.machine.now()
        reply = MigrationReply(True)
        try:
            self._holding.check_open()
            job = await machine.blocking(self._holding.jobs.read, name)
            await self._holding.host.rehearse(job)
        except (BraidedError, OSError) as error:
            self.under_way = None
            reply = MigrationReply(False, f"not ready: {error}"[:1000])
        else:
            self._holding.note(name, f"rehearsed, {machine.now() - begun:.1f} s")
            self._ready[name] = ready = (node, epoch, job)

            def give_up() -> None:
                if self._ready.get(name) is ready:
                    self._forget(name)

            machine.later(2 * self._start, give_up)
        self._rehearsing.pop((node, name, epoch)).set_result(reply)

    def _is_ready(self, sender: Contact, name: str, epoch: int) -> bool:
        return name in self._ready and self._ready[name][:2] == (sender.node, epoch)

    async def _updated(self, sender: Contact, update: MigrationUpdate) -> Message:
        if update.component in self._starting:  # a repeated request
            return await asyncio.shield(self._starting[update.component])
        held = self._holding.held(update.component)
        if held is not None and held.lease.epoch == update.epoch + 1:
            return MigrationUpdateReply(True)
        if not self._is_ready(sender, update.component, update.epoch):
            return MigrationUpdateReply(False, f"{update.component}: not ready for epoch {update.epoch}")
        started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._starting[update.component] = started
        reply = MigrationUpdateReply(True)
        try:
            await self._holding.take(self._ready[update.component][2], update.epoch + 1, update.position)
        except PeerError as error:
            reply = MigrationUpdateReply(False, str(error)[:1000])
        finally:
            del self._starting[update.component]
            self._forget(update.component)
        started.set_result(reply)
        return reply

    def _forget(self, name: str) -> None:
        self._ready.pop(name, None)
        if self.under_way == name:
            self.under_way = None

"""Migration in six phases, with offsets (Synergy, section 3.2; EBS, section 4.2).

```
 responsible peer        source                          target
    1 decision ------------>|                               |
                            | 2 request ------------------->|  rehearses on a clone, into no sink
                            |<-------------------- 3 reply  |
          stops after a batch, releases its lease           |
                            | 4 update: epoch, position --->|  takes the next epoch, claims the topics,
                            |<------------- 5 update reply  |  goes on from exactly there
    |<----------------- 6 end  forgets the component        |
```

In the paper the update goes to the components upstream. Here those know nothing of it: components are coupled by
topics, and the source's position in them is the sequence number of its last tuple. Until phase 4 the source runs on and
any failure leaves it so. After it, whoever creates the next epoch in storage owns the component: the target, or the
source that takes it back, or, if both die, whom a guardian chooses once the lease has expired.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from braided.errors import BraidedError, PeerError
from braided.peers.agent import Agent
from braided.peers.holding import Holding
from braided.peers.host import Job
from braided.peers.leases import Position
from braided.peers.messages import Contact, Done, Message, expect, message
from braided.peers.watch import Move

REHEARSAL = 120.0
"""Seconds that a target may take to rehearse, and to start: a Spark application that is cold on a busy machine."""
_ATTEMPTS = 2  # of an update whose reply does not come


@message
@dataclass(frozen=True)
class MigrationDecision(Message):
    """Phase 1: move a component to a target."""

    component: str
    target: Contact
    reason: str


@message
@dataclass(frozen=True)
class MigrationRequest(Message):
    """Phase 2: get ready to take over what the sender owns with this epoch."""

    component: str
    epoch: int


@message
@dataclass(frozen=True)
class MigrationReply(Message):
    """Phase 3: the target has rehearsed and is ready; or why it is not."""

    ok: bool
    reason: str = ""


@message
@dataclass(frozen=True)
class MigrationUpdate(Message):
    """Phase 4: the sender has stopped; its epoch, and how far it has come."""

    component: str
    epoch: int
    position: Position


@message
@dataclass(frozen=True)
class MigrationUpdateReply(Message):
    """Phase 5: the target owns the component and runs it; or why not."""

    ok: bool
    reason: str = ""


@message
@dataclass(frozen=True)
class MigrationEnd(Message):
    """Phase 6: whether the component has moved."""

    component: str
    ok: bool
    reason: str = ""


class Migrator:
    """Both sides of a migration, and the side of who decided it. A peer takes part in one at a time.

    patience : seconds to wait for a target to rehearse, and to start.
    """

    def __init__(self, agent: Agent, holding: Holding, *, patience: float = REHEARSAL) -> None:
        self._agent = agent
        self._holding = holding
        self._patience = patience
        self.under_way: str | None = None
        """The component whose migration this peer takes part in."""
        self._ready: dict[str, tuple[str, int, Job]] = {}
        self._starting: dict[str, asyncio.Future[Message]] = {}
        self._ends: dict[tuple[str, str], asyncio.Future[MigrationEnd]] = {}
        agent.on(MigrationDecision, self._decided)
        agent.on(MigrationRequest, self._requested)
        agent.on(MigrationUpdate, self._updated)
        agent.on(MigrationEnd, self._ended)

    # Who decides.

    async def order(self, move: Move) -> bool:
        """Have a component moved; return whether it has, once that is known."""
        return (await self.carry_out(move)).ok

    async def carry_out(self, move: Move) -> MigrationEnd:
        """Have a component moved; return whether it has, or why not."""
        key = (move.source.node, move.component)
        if key in self._ends:
            return MigrationEnd(move.component, False, "it is being moved")
        end: asyncio.Future[MigrationEnd] = asyncio.get_running_loop().create_future()
        self._ends[key] = end

        def give_up() -> None:
            if not end.done():
                end.set_result(MigrationEnd(move.component, False, "no end was reported"))

        # The source needs time for a rehearsal, for a batch to end and for the target to start.
        cancel = self._agent.machine.later((2 + _ATTEMPTS) * self._patience, give_up)
        try:
            decision = MigrationDecision(move.component, move.target, move.reason[:1000])
            reply = expect(await self._agent.ask(move.source, decision), Done)
            if reply is None or not reply.ok:
                why = reply.reason if reply else f"peer {move.source.name} does not answer"
                return MigrationEnd(move.component, False, why)
            return await end
        finally:
            cancel()
            del self._ends[key]

    def _ended(self, sender: Contact, end: MigrationEnd) -> None:
        waiting = self._ends.get((sender.node, end.component))
        if waiting is not None and not waiting.done():
            waiting.set_result(end)

    # The source.

    def _decided(self, sender: Contact, decision: MigrationDecision) -> Message:
        held = self._holding.held(decision.component)
        if held is None or held.is_leaving:
            return Done(False, f"component={decision.component!r}: does not run here")
        if decision.target.node == self._agent.contact.node:
            return Done(False, f"component={decision.component!r}: is here already")
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
        """Do phases 2 to 5; return why the component has not moved, nothing if it has."""
        target = decision.target
        reply = await self._agent.ask(target, MigrationRequest(job.name, epoch), self._patience)
        ready = expect(reply, MigrationReply)
        if ready is None or not ready.ok:
            return f"not moved to {target.name}: {ready.reason if ready else 'no reply to the request'}"
        position = await self._holding.give(job.name)
        update = MigrationUpdate(job.name, epoch, position)
        for _ in range(_ATTEMPTS):
            answer = expect(await self._agent.ask(target, update, self._patience / 2), MigrationUpdateReply)
            if answer is not None:
                break
        if answer is not None and answer.ok:
            return ""
        # Storage knows whose it is: this peer's if it can create the next epoch.
        if not await self._holding.take_back(job, epoch, position):
            return ""
        return f"taken back from {target.name}: {answer.reason if answer else 'no reply to the update'}"

    # The target.

    async def _requested(self, sender: Contact, request: MigrationRequest) -> Message:
        name = request.component
        if self.under_way is not None:
            return MigrationReply(False, f"a migration of {self.under_way} is under way at the target")
        self.under_way = name
        try:
            self._holding.check_open()
            job = await self._agent.machine.blocking(lambda: self._holding.jobs.read(name))
            await self._holding.host.rehearse(job)
        except (BraidedError, OSError) as error:
            self.under_way = None
            return MigrationReply(False, f"not ready: {error}"[:1000])
        self._ready[name] = ready = (sender.node, request.epoch, job)

        def give_up() -> None:
            if self._ready.get(name) is ready:
                self._forget(name)

        self._agent.machine.later(2 * self._patience, give_up)
        return MigrationReply(True)

    async def _updated(self, sender: Contact, update: MigrationUpdate) -> Message:
        if update.component in self._starting:  # asked again
            return await asyncio.shield(self._starting[update.component])
        held = self._holding.held(update.component)
        if held is not None and held.lease.epoch == update.epoch + 1:
            return MigrationUpdateReply(True)
        ready = self._ready.get(update.component)
        if ready is None or ready[:2] != (sender.node, update.epoch):
            return MigrationUpdateReply(False, f"{update.component}: not ready for epoch {update.epoch}")
        started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._starting[update.component] = started
        reply = MigrationUpdateReply(True)
        try:
            await self._holding.take(ready[2], update.epoch + 1, update.position)
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

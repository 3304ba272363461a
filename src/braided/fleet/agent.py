"""An agent: answers messages, sends requests with a time limit, and hosts the parts of a peer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from braided.errors import BraidedError, PeerError
from braided.fleet.agent_machine import Machine
from braided.fleet.messages import Contact, Done, Envelope, Message, Ping, Request, decode, encode

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Answer = Message | None | Awaitable[Message | None]
MAX_ASKED = 10_000  # requests that wait for a reply
MAX_ANSWERING = 1_000  # requests that are being answered
_FORGET = 1.05


class Agent:
    """Sends and receives the messages of one peer. Parts register handlers with `on`; a handler's result is the reply.

    `counts` has the numbers of messages received, sent and dropped, by kind. Messages that are malformed, too large, or
    not from the node that they name are dropped.
    """

    def __init__(self, contact: Contact, machine: Machine, *, patience: float = 2.0) -> None:
        self.contact = contact
        self.machine = machine
        self.patience = patience
        """Seconds to wait for a reply by default."""
        self.counts: Counter[str] = Counter()
        self.latency: dict[str, float] = {}
        """Latency in seconds to peers that have answered, by their ids: half of the shortest recent response time."""
        self.seen: list[Callable[[Contact], None]] = []
        """Called with every peer that sends a message."""
        self.missed: list[Callable[[Contact], None]] = []
        """Called with every peer that did not answer in time."""
        self._handlers: dict[type[Message], Callable[[Contact, Any], Answer]] = {}
        self._asked: dict[int, tuple[Contact, asyncio.Future[Message]]] = {}
        self._number = machine.random.getrandbits(32)
        self._answering = 0
        self.on(Ping, lambda sender, ping: Done())

    def on(self, kind: type[M], handler: Callable[[Contact, M], Answer]) -> None:
        """Let a handler answer a kind of message: at once, or with an awaitable; None sends no reply."""
        self._handlers[kind] = handler

    def tell(self, to: Contact, message: Message) -> None:
        """Send a message that needs no reply."""
        self._number += 1
        self._send(to, Envelope(self.contact, self._number, False, message))

    async def ask(self, to: Contact, message: Message, patience: float | None = None) -> Message | None:
        """Send a message and return its reply; None if none came in time. A request to itself sends no message."""
        if to.node == self.contact.node:
            return await self._wait_for(self._answer(self.contact, message))
        if len(self._asked) >= MAX_ASKED:
            self.counts["not asked"] += 1
            return None
        self._number += 1
        number = self._number
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = (to, future)
        begun = self.machine.now()
        self._send(to, Envelope(self.contact, number, False, message))
        try:
            reply = await self.within(future, self.patience if patience is None else patience)
        finally:
            del self._asked[number]
        if reply is None:
            self.counts["no reply"] += 1
            for call in self.missed:
                call(to)
        else:
            self._note_latency(to.node, (self.machine.now() - begun) / 2)
        return reply

    async def within(self, future: asyncio.Future[T], seconds: float) -> T | None:
        """Return the result of a future; None if there is none within `seconds` of this machine's clock."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not end.done():
                end.set_result(None)

        future.add_done_callback(wake)
        cancel = self.machine.later(seconds, wake)
        try:
            await end
        finally:
            cancel()
        return future.result() if future.done() else None

    def _note_latency(self, node: str, seconds: float) -> None:
        """Keep the shortest time, which slowly grows: some answers take work, and network paths change."""
        if node not in self.latency and len(self.latency) >= MAX_ASKED:
            self.latency.clear()
        self.latency[node] = min(seconds, _FORGET * self.latency.get(node, seconds))

    def receive(self, node: str, frame: bytes) -> None:
        """Take a frame from `node`, whose certificate proves its identity."""
        try:
            envelope = decode(frame)
        except PeerError:
            self.counts["malformed"] += 1
            return
        sender = envelope.sender
        if sender.node != node:
            self.counts["impostor"] += 1
            return
        self.counts[f"received {type(envelope.message).__name__}"] += 1
        if not isinstance(envelope.message, Request):
            for call in self.seen:
                call(sender)
        if envelope.is_reply:
            asked = self._asked.get(envelope.number)
            # A reply without a request is late, a duplicate, or a guess.
            if asked is None or asked[0].node != node or asked[1].done():
                self.counts["unasked"] += 1
            else:
                asked[1].set_result(envelope.message)
            return
        answer = self._answer(sender, envelope.message)
        if isinstance(answer, Awaitable):
            if self._answering >= MAX_ANSWERING:
                self.counts["not answered"] += 1
                if asyncio.iscoroutine(answer):
                    answer.close()
                return
            self.machine.spawn(self._reply_later(envelope, answer))
        else:
            self._reply(envelope, answer)

    def _answer(self, sender: Contact, message: Message) -> Answer:
        handler = self._handlers.get(type(message))
        if handler is None:
            return Done(False, f"{type(message).__name__}: this peer does not answer such messages")
        try:
            return handler(sender, message)
        except PeerError as error:
            return Done(False, str(error)[:1000])

    async def _reply_later(self, envelope: Envelope, answer: Awaitable[Message | None]) -> None:
        self._answering += 1
        try:
            self._reply(envelope, await self._wait_for(answer))
        finally:
            self._answering -= 1

    async def _wait_for(self, answer: Answer) -> Message | None:
        try:
            return await answer if isinstance(answer, Awaitable) else answer
        except (BraidedError, OSError) as error:  # OSError: storage cannot be reached
            return Done(False, str(error)[:1000])

    def _reply(self, envelope: Envelope, answer: Message | None) -> None:
        if answer is not None:
            self._send(envelope.sender, Envelope(self.contact, envelope.number, True, answer))

    def _send(self, to: Contact, envelope: Envelope) -> None:
        try:
            frame = encode(envelope)
        except PeerError:
            self.counts["too large"] += 1
            return
        self.counts[f"sent {type(envelope.message).__name__}"] += 1
        self.machine.send(to, frame)

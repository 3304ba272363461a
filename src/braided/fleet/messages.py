"""Messages: checked dataclasses in JSON, of limited size. Nothing from the network is unpickled or evaluated."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, TypeVar

from braided.errors import PeerError
from braided.fleet.json_records import Record, fields_of

LIMIT = 64 << 10
"""The largest message, in bytes."""
VERSION = 1
_NODE = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}:[0-9]{1,5}")


class Contact(Record):
    """The address of a peer.

    node : its id, 40 hex digits: the SHA-1 of the public key in its certificate, so that no peer can use another's id.
    """

    node: str
    address: str
    name: str

    def __post_init__(self) -> None:
        if not _NODE.fullmatch(self.node):
            raise PeerError(f"node={self.node[:80]!r}: write 40 hex digits")
        if not _ADDRESS.fullmatch(self.address):
            raise PeerError(f"address={self.address[:80]!r}: write host:port")
        check_name(self.name, "name")

    @cached_property
    def number(self) -> int:
        """The id as a number, for distances."""
        return int(self.node, 16)


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be the name of a peer, an operator or a component; the names are also used for files."""
    if not _NAME.fullmatch(name):
        rule = "letters, digits, dots, dashes and underscores, a letter or digit first, at most 100"
        raise PeerError(f"{what}={name[:80]!r}: write {rule}")


_KINDS: dict[str, type[Message]] = {}


class Message(Record):
    """A message between peers. Every subclass is a kind of message, identified by its name."""

    def __init_subclass__(cls, is_kind: bool = True) -> None:
        super().__init_subclass__()
        if is_kind:
            _KINDS[cls.__name__] = cls


class Request(Message, is_kind=False):
    """A request of a user to a peer. Its sender is not a peer, and is not stored as a contact."""


M = TypeVar("M", bound=Message)


def kinds() -> dict[str, type[Message]]:
    """Return all kinds of messages that have been defined."""
    return dict(_KINDS)


@dataclass(frozen=True)
class Envelope:
    """A message with its sender. A reply has the number of its request."""

    sender: Contact
    number: int
    is_reply: bool
    message: Message


def encode(envelope: Envelope) -> bytes:
    """Return an envelope in the form that is sent."""
    content = {
        "version": VERSION,
        "kind": type(envelope.message).__name__,
        "number": envelope.number,
        "is_reply": envelope.is_reply,
        "sender": envelope.sender,
        "body": envelope.message,
    }
    frame = json.dumps(content, separators=(",", ":"), allow_nan=False, default=fields_of).encode()
    if len(frame) > LIMIT:
        raise PeerError(f"{content['kind']}: {len(frame)} bytes, more than {LIMIT}; send less")
    return frame


class _Header(Record):
    version: int
    kind: str
    number: int
    is_reply: bool
    sender: Contact


def decode(frame: bytes) -> Envelope:
    """Return the envelope in a frame; `PeerError` for everything that is not one of our messages."""
    if len(frame) > LIMIT:
        raise PeerError(f"a message of {len(frame)} bytes, more than {LIMIT}")
    try:
        content = json.loads(frame, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"not JSON: {type(error).__name__}") from None
    if not isinstance(content, dict) or "body" not in content:
        raise PeerError("a message without a body")
    body = content.pop("body")
    header = _Header.read(content)
    if header.version != VERSION:
        raise PeerError(f"version={header.version}: this peer speaks version {VERSION}; upgrade the older one")
    kind = _KINDS.get(header.kind)
    if kind is None:
        raise PeerError(f"kind={header.kind[:80]!r}: unknown message")
    return Envelope(header.sender, header.number, header.is_reply, kind.read(body))


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


class Ping(Message):
    """Ask a peer whether it answers."""


class Done(Message):
    """The reply yes; or no, with the reason."""

    ok: bool = True
    reason: str = ""


def expect(reply: Message | None, kind: type[M]) -> M | None:
    """Return a reply if it came and is of the expected kind."""
    return reply if isinstance(reply, kind) else None

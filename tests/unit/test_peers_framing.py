"""Frames: the same messages however bytes arrive, and nothing beyond the limit."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import PeerError
from braided.fleet.framing import Frames, frame
from braided.fleet.messages import LIMIT


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_a_stream_is_cut_into_the_same_messages_however_it_arrives(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, sent))
    frames, found, at, turn = Frames(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += frames.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == sent
    assert len(frames._pending) == 0


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_give_messages_within_the_limit_or_an_error(chunks: list[bytes]) -> None:
    frames = Frames()
    fed = 0
    with contextlib.suppress(PeerError):
        for chunk in chunks:
            fed += len(chunk)
            assert all(0 < len(content) <= LIMIT for content in frames.feed(chunk))
    assert len(frames._pending) <= fed


def test_frames_that_cannot_be_are_refused() -> None:
    for length in (0, LIMIT + 1, 0xFFFFFFFF):
        with pytest.raises(PeerError, match=f"a frame of {length} bytes: not 1 to {LIMIT}"):
            Frames().feed(struct.pack(">I", length))
    with pytest.raises(PeerError, match="a message of 0 bytes"):
        frame(b"")

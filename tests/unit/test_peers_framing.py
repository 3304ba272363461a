"""Frames: the same messages however bytes arrive, and nothing beyond the limit."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import PeerError
from braided.fleet.framing import frame, read_frame
from braided.fleet.messages import LIMIT


def cut(chunks: list[bytes]) -> list[bytes]:
    """The messages of a stream that arrives in these chunks, each read as far as it goes before the next comes."""

    async def read() -> list[bytes]:
        reader, messages = asyncio.StreamReader(), list[bytes]()

        async def listen() -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    messages.append(await read_frame(reader))

        task = asyncio.create_task(listen())
        for chunk in chunks:
            reader.feed_data(chunk)
            await asyncio.sleep(0)
        reader.feed_eof()
        await task
        return messages

    return asyncio.run(read())


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_a_stream_is_cut_into_the_same_messages_however_it_arrives(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, sent))
    chunks, at = [], 0
    while at < len(stream):
        step = cuts[len(chunks) % len(cuts)]
        chunks.append(stream[at : at + step])
        at += step
    assert cut(chunks) == sent


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_give_messages_within_the_limit_or_an_error(chunks: list[bytes]) -> None:
    with contextlib.suppress(PeerError):
        messages = cut(chunks)
        assert all(0 < len(content) <= LIMIT for content in messages)
        assert sum(map(len, messages)) <= sum(map(len, chunks))


def test_frames_that_cannot_be_are_refused() -> None:
    for length in (0, LIMIT + 1, 0xFFFFFFFF):
        with pytest.raises(PeerError, match=f"a frame of {length} bytes: not 1 to {LIMIT}"):
            cut([struct.pack(">I", length)])
    with pytest.raises(PeerError, match="a message of 0 bytes"):
        frame(b"")

"""Frames of a stream are whole and in order, for any boundaries of the received pieces."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from wire.protocol.streams.frame_stream import SCRATCH_BYTES, FrameBuffers, FrameStream

SIZES = st.one_of(st.integers(0, 200), st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8), st.integers(0, 200_000))


@settings(max_examples=150, deadline=None)
@given(sizes=st.lists(SIZES, max_size=12), reads=st.lists(st.integers(1, 50_000), min_size=1), seed=st.integers(0, 255))
def test_frames_survive_any_fragmentation(sizes: list[int], reads: list[int], seed: int) -> None:
    sent = [bytes(((seed + number) % 256,)) * size for number, size in enumerate(sizes)]
    received: list[memoryview] = []
    lost: list[str] = []
    stream = FrameStream(frame_bytes_max=1 << 20, on_frame=received.append, on_lost=lost.append)
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)
    at = turn = 0
    while at < len(data):
        buffer = stream.get_buffer(-1)
        assert len(buffer) > 0
        count = min(len(buffer), reads[turn % len(reads)], len(data) - at)
        buffer[:count] = data[at : at + count]
        stream.buffer_updated(count)
        at, turn = at + count, turn + 1
    assert [bytes(frame) for frame in received] == sent
    assert lost == []


def test_buffer_is_used_again_only_when_no_slice_of_its_frame_lives() -> None:
    buffers = FrameBuffers()
    first = memoryview(buffers.take(100_000))
    address = id(first.obj)
    kept = first[10:20]
    del first
    second = buffers.take(100_000)
    assert id(second) != address
    del kept
    assert id(buffers.take(100_000)) == address


def test_a_buffer_is_reused_when_no_reader_holds_it() -> None:
    buffers = FrameBuffers()
    known = buffers.take(100_000)
    assert buffers.take(100_000) is known
    reading = memoryview(known)[:1].cast("b")
    assert buffers.take(100_000) is not known
    reading.release()
    assert buffers.take(100_000) is known
    assert len(known) == 1 << 17


def test_a_connection_that_ends_within_a_frame_gives_its_buffer_back_at_once() -> None:
    buffers = FrameBuffers(kept_max=2)
    seen, ended = set(), []
    for _ in range(5):
        stream = FrameStream(frame_bytes_max=1 << 20, on_frame=lambda _: None, on_lost=lambda _: None, buffers=buffers)
        stream.feed(struct.pack(">i", 300_000) + bytes(200_000))
        seen.add(id(stream.get_buffer(-1).obj))
        stream.connection_lost(None)
        ended.append(stream)  # as code that waits for the garbage collector
    assert len(seen) == 1


def test_huge_frames_are_not_kept() -> None:
    buffers = FrameBuffers()
    first = memoryview(buffers.take(64 << 20))
    kept = id(first.obj)
    second = memoryview(buffers.take(64 << 20))
    assert id(second.obj) != kept
    assert len(second) == 64 << 20


def test_streams_that_share_buffers_use_each_others() -> None:
    buffers = FrameBuffers()
    frames: list[memoryview] = []
    streams = [
        FrameStream(frame_bytes_max=1 << 20, on_frame=frames.append, on_lost=lambda _: None, buffers=buffers)
        for _ in range(2)
    ]
    seen = set()
    for turn in range(6):
        streams[turn % 2].feed(struct.pack(">i", 300_000) + bytes(300_000))
        seen.add(id(frames.pop().obj))
    assert len(seen) == 1

"""Frames survive any cut; what is not a frame is refused before it is kept."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import VECTORS, raw
from tube.errors import FrameTooLargeError, WireError
from tube.limits import BLOCK_BYTES_MAX, BLOCK_COUNT_MAX, FRAME_BYTES_MAX
from tube.wire.frame import PREFIX_BYTES, TOKEN, Frame, FrameDecoder, encode, encode_parts

serials = st.integers(0, 2**32 - 1)
frames = st.builds(Frame, serials, st.binary(min_size=1, max_size=300))


def header(count: int, *lengths: int, token: int = TOKEN, serial: int = 7) -> bytes:
    return struct.pack(f">III{len(lengths)}I", token, serial, count, *lengths)


def blocks(stream: bytes) -> list[bytes]:
    """The blocks of one frame, cut by hand."""
    (count,) = struct.unpack_from(">I", stream, 8)
    found, at = [], 12
    for _ in range(count):
        (length,) = struct.unpack_from(">I", stream, at)
        found.append(stream[at + 4 : at + 4 + length])
        at += 4 + length
    assert at == len(stream)
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_golden_frames_decode_and_encode(vector):
    """Every golden frame gives its payload, and its payload gives the frame."""
    decoder = FrameDecoder()
    got = decoder.feed(raw(vector))

    assert got == [Frame(vector["serialNo"], bytes.fromhex(vector["payload_hex"]))]
    assert decoder.buffered_bytes == 0
    assert encode(*got[0], block_bytes=vector["blockSizes"][0]) == raw(vector)


@given(st.lists(frames, max_size=5), st.integers(1, 400), st.data())
def test_frames_survive_any_cut(sent, block_bytes, data):
    """However TCP and the sender cut the stream, the same frames come out."""
    stream = b"".join(encode(*frame, block_bytes=block_bytes) for frame in sent)
    decoder, got, at = FrameDecoder(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        got += decoder.feed(stream[at : at + step])
        at += step

    assert got == sent
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_golden_frames_survive_every_single_cut(vector):
    """Two chunks, cut at every byte, give the frame exactly once; so do single bytes."""
    stream = raw(vector)
    whole = FrameDecoder().feed(stream)
    for at in range(len(stream)):
        decoder = FrameDecoder()
        assert decoder.feed(stream[:at]) + decoder.feed(stream[at:]) == whole

    decoder = FrameDecoder()
    got = [frame for i in range(len(stream)) for frame in decoder.feed(stream[i : i + 1])]
    assert got == whole


def test_a_chunk_gives_all_its_frames_and_keeps_the_unfinished_one():
    """A hundred frames and a half come in one read: a hundred go out, half a frame is held."""
    stream = b"".join(encode(i, b"x" * 1000) for i in range(100))
    decoder = FrameDecoder()
    got = decoder.feed(stream + stream[:500])

    assert [frame.serial for frame in got] == list(range(100))
    assert decoder.buffered_bytes == 500


def test_blocks_of_any_length_are_read():
    """One-byte and empty blocks are legal, as the original servers accept them."""
    stream = header(4, 1) + b"a" + struct.pack(">I", 0) + struct.pack(">I", 2) + b"bc"
    decoder = FrameDecoder()
    assert decoder.feed(stream) == []
    assert decoder.buffered_bytes == 3
    assert decoder.feed(struct.pack(">I", 0)) == [Frame(7, b"abc")]


@given(st.binary(max_size=200))
def test_random_bytes_wait_or_are_refused(garbage):
    """Nothing but WireError comes out of random bytes, and nothing but they is kept."""
    decoder = FrameDecoder(64)
    try:
        decoder.feed(garbage)
    except WireError:
        assert decoder.buffered_bytes == 0
    assert decoder.buffered_bytes <= len(garbage)


@given(st.sampled_from(VECTORS), st.data())
def test_mutated_frames_wait_or_are_refused(vector, data):
    """A flipped byte leads to a frame, to waiting or to WireError; memory stays bounded."""
    stream = bytearray(raw(vector) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    decoder = FrameDecoder(4096)
    cut = data.draw(st.integers(0, len(stream)))
    try:
        decoder.feed(bytes(stream[:cut]))
        decoder.feed(bytes(stream[cut:]))
    except WireError:
        assert decoder.buffered_bytes == 0
    assert decoder.buffered_bytes <= len(stream)


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"\xff\x7f\xf5", "starts with ff7ff5"),
        (b"GET / HTTP/1.1\r\n\r\n", "starts with"),
        (header(0), "block count 0"),
        (header(BLOCK_COUNT_MAX + 1), "block count 3585"),
        (header(0, 5), "block count 0"),
        (header(BLOCK_COUNT_MAX + 1, 5), "block count 3585"),
        (header(1, 5, token=TOKEN + 1), "starts with"),
    ],
)
def test_a_broken_head_is_refused_at_once(stream, text):
    """A wrong token or block count is not waited on, and ends the stream for good."""
    decoder = FrameDecoder()
    with pytest.raises(WireError, match=text):
        decoder.feed(stream)
    with pytest.raises(WireError, match=text):
        decoder.feed(b"")

    assert decoder.buffered_bytes == 0


def test_a_frame_over_the_limit_is_refused_before_it_is_kept():
    """The announcement is enough: no byte of a too large block is waited for."""
    for stream in (header(1, 1001), header(2, 1001), header(2, 600) + b"x" * 600 + header(2)[8:12]):
        decoder = FrameDecoder(1000)
        if stream[8:12] == header(2)[8:12] and len(stream) > 100:
            decoder.feed(stream[:-4])
            stream = struct.pack(">I", 401)
        with pytest.raises(FrameTooLargeError, match="1001 bytes, limit is 1000"):
            decoder.feed(stream)
        assert decoder.buffered_bytes == 0

    exact = encode(1, b"x" * 1000, 600)
    assert FrameDecoder(1000).feed(exact) == [Frame(1, b"x" * 1000)]


def test_frames_before_a_fault_are_not_lost():
    """Good frames of the chunk come first; the fault is shown, and raised by the next feed."""
    decoder = FrameDecoder(1000)
    assert decoder.feed(encode(1, b"good") + header(1, 1001)) == [Frame(1, b"good")]
    assert isinstance(decoder.fault, FrameTooLargeError)
    with pytest.raises(FrameTooLargeError):
        decoder.feed(encode(2, b"later"))


def test_the_limit_may_change_between_frames():
    """A peer that has shown who it is may send larger frames."""
    decoder = FrameDecoder(10)
    assert decoder.feed(encode(1, b"x" * 10)) == [Frame(1, b"x" * 10)]
    decoder.payload_bytes_max = 1000
    assert decoder.feed(encode(2, b"x" * 1000)) == [Frame(2, b"x" * 1000)]


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 700))
def test_a_limit_is_raised_once_per_frame_by_its_prefix(block_bytes, step, size):
    """Whoever knows the limit sees the payload's beginning, once, and only of large frames."""
    asked: list[bytes] = []

    def limit(prefix: bytes) -> int:
        asked.append(prefix)
        return 500

    payload = bytes(i % 251 for i in range(size))
    stream = encode(1, payload, block_bytes) * 2
    decoder, got = FrameDecoder(200, raise_limit=limit), []
    try:
        for at in range(0, len(stream), step):
            got += decoder.feed(stream[at : at + step])
    except FrameTooLargeError:
        pass

    assert all(payload.startswith(prefix) for prefix in asked)
    assert all(len(prefix) >= min(PREFIX_BYTES, block_bytes) for prefix in asked)
    if size <= 200:
        assert (got, asked) == ([Frame(1, payload)] * 2, [])
    elif size <= 500:
        assert (got, len(asked)) == ([Frame(1, payload)] * 2, 2)
    else:
        assert (got, len(asked)) == ([], 1)


def test_a_large_frame_waits_for_its_prefix():
    """With too little to tell whose frame it is, the decoder neither asks nor refuses."""
    asked: list[bytes] = []
    decoder = FrameDecoder(200, raise_limit=lambda prefix: asked.append(prefix) or 1000)
    assert decoder.feed(header(1, 300) + b"x" * (PREFIX_BYTES - 1)) == []
    assert asked == []
    assert decoder.feed(b"x") == []
    assert asked == [b"x" * PREFIX_BYTES]
    assert decoder.feed(b"x" * 172) == [Frame(7, b"x" * 300)]


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 60))
def test_parts_are_framed_like_their_sum(parts, block_bytes):
    """Pieces of parts are the frame of the joined parts, in blocks that are never empty."""
    payload = b"".join(parts)
    pieces = encode_parts(3, [memoryview(part) for part in parts], block_bytes)
    stream = b"".join(pieces)

    assert stream == encode(3, payload, block_bytes)
    sizes = [len(block) for block in blocks(stream)]
    assert all(size == block_bytes for size in sizes[:-1])
    assert 0 < sizes[-1] <= block_bytes or not payload


def test_one_block_copies_nothing():
    """Without a block length the parts go out as they are."""
    part = b"x" * 20_000
    pieces = encode_parts(3, [b"head", part], None)

    assert pieces[2] is part
    assert blocks(b"".join(pieces)) == [b"head" + part]


def test_blocks_suit_the_original_clients():
    """By default no block is longer than the C++ client takes."""
    sizes = [len(block) for block in blocks(encode(1, b"x" * 20_000))]
    assert sizes == [BLOCK_BYTES_MAX, BLOCK_BYTES_MAX, 20_000 - 2 * BLOCK_BYTES_MAX]


def test_frames_that_nobody_takes_are_not_written():
    """Neither more bytes nor more blocks than a peer may receive."""
    with pytest.raises(FrameTooLargeError, match="bytes, limit"):
        encode(1, bytes(FRAME_BYTES_MAX + 1))
    with pytest.raises(FrameTooLargeError, match="3585 blocks"):
        encode(1, bytes(BLOCK_COUNT_MAX + 1), 1)


def test_a_large_frame_is_not_copied_again_and_again():
    """Fed in small chunks, a large single block only grows the buffer."""
    stream = encode_parts(1, [bytes(2_000_000)], None)
    decoder, got = FrameDecoder(), []
    joined = b"".join(stream)
    for at in range(0, len(joined), 1000):
        got += decoder.feed(joined[at : at + 1000])

    assert [len(frame.payload) for frame in got] == [2_000_000]

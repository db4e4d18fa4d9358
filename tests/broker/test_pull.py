"""Pulls give every message once, in order, whatever the sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.broker.pull import Cut, cut
from tube.log.block import Block
from tube.wire import run
from tube.wire.message import check_sum

HASHES = [11, 22, 33]


def block(base: int, sizes: list[int], *, span: int | None = None, time_ms: int = 0) -> Block:
    """A block of messages whose ids are their offsets and whose types go round."""
    payload, bits = b"", 0
    for i, size in enumerate(sizes):
        data = bytes(size)
        kind = HASHES[(base + i) % 3]
        bits |= run.filter_bit(kind)
        payload += run.encode_message(base + i, check_sum(data), data, 0, kind)
    return Block(base, span or len(sizes), len(sizes), payload, time_ms, time_ms, bits)


def offsets(answer: Cut) -> list[int]:
    found = [
        o for span in answer.spans for o in range(span.base_offset, span.base_offset + span.count)
    ]
    joined = b"".join(answer.parts)
    from tube.pb.BrokerService_pb2 import GetMessageResponseB2C

    message = GetMessageResponseB2C.FromString(b"\x08\x01\x10\xc8\x01" + joined)
    assert [m.messageId for m in message.messages] == found
    assert answer.count == len(found)
    return found


layouts = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), min_size=1, max_size=6)


def build(layout: list[list[int]], gap: int) -> list[Block]:
    blocks, base = [], 0
    for sizes in layout:
        blocks.append(block(base, sizes, time_ms=base // 7))
        base += len(sizes) + gap
    return blocks


@given(layouts, st.integers(0, 2), st.integers(1, 2000), st.data())
def test_pulling_on_and_on_gives_every_message_once(
    layout: list[list[int]], gap: int, bytes_max: int, data: st.DataObject
) -> None:
    """From any offset, with any size, over gaps: the rest in order, nothing twice, nothing missing."""
    blocks = build(layout, gap)
    everything = [b.base_offset + i for b in blocks for i in range(b.count)]
    end = blocks[-1].end_offset
    offset = start = data.draw(st.integers(0, end - 1))
    got: list[int] = []
    while offset < end:
        rest = [b for b in blocks if b.end_offset > offset]
        answer = cut(rest, offset, bytes_max)
        assert answer.next_offset > offset
        assert answer.byte_count <= bytes_max or answer.count == 1
        got += offsets(answer)
        offset = answer.next_offset

    assert got == [o for o in everything if o >= start]


@given(layouts, st.integers(1, 2000), st.sets(st.sampled_from([*HASHES, 44]), min_size=1))
def test_filters_leave_out_what_does_not_match(
    layout: list[list[int]], bytes_max: int, filters: set[int]
) -> None:
    """Only messages of these types come, all of them, and the pull gets past the others."""
    blocks = build(layout, 0)
    end, offset, got = blocks[-1].end_offset, 0, []
    while offset < end:
        answer = cut(
            [b for b in blocks if b.end_offset > offset],
            offset,
            bytes_max,
            filters=frozenset(filters),
        )
        assert answer.next_offset > offset
        got += offsets(answer)
        offset = answer.next_offset

    assert got == [o for o in range(end) if HASHES[o % 3] in filters]


def test_an_end_offset_cuts_inside_a_block() -> None:
    """A ranged fetch gets exactly its range."""
    answer = cut([block(0, [1] * 10)], 3, 10_000, end_offset=7)

    assert offsets(answer) == [3, 4, 5, 6]
    assert answer.next_offset == 7


def test_neighbours_of_one_append_time_are_one_span() -> None:
    """Two blocks of one commit window need no two spans."""
    answer = cut([block(0, [1, 1]), block(2, [1]), block(3, [1], time_ms=9)], 0, 10_000)

    assert [(s.base_offset, s.count, s.append_time_ms) for s in answer.spans] == [
        (0, 3, 0),
        (3, 1, 9),
    ]


def test_nothing_gives_nothing() -> None:
    """No blocks: no messages, and the offset stays."""
    assert cut([], 5, 100).next_offset == 5

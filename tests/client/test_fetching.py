"""The buffer of a consumer: in order, bounded to what was asked, honest about damage."""

from __future__ import annotations

from collections import deque

from tube.client.fetching import Buffer, decode
from tube.pb.BrokerService_pb2 import GetMessageResponseB2C
from tube.values import Partition
from tube.wire.message import check_sum

A, B = Partition("demo", 1, 0), Partition("demo", 1, 1)


def answer(*values: bytes, base: int = 0, spans: bool = True) -> GetMessageResponseB2C:
    """What a broker says to a pull."""
    made = GetMessageResponseB2C(success=True, errCode=200, errMsg="", currOffset=base)
    for value in values:
        made.messages.add(messageId=1, checkSum=check_sum(value), payLoadData=value, flag=0)
    if spans:
        made.spans.add(base_offset=base, count=len(values), append_time_ms=9)
        made.next_offset = base + len(values)
    return made


def test_chunks_are_handed_out_in_order_and_in_pieces() -> None:
    """As many as are asked for; a chunk counts until its last message is taken."""
    buffer, corrupt = Buffer(), deque()
    buffer.put(decode(A, answer(b"0", b"1", b"2"), 30, corrupt))
    buffer.put(decode(B, answer(b"3", base=7), 10, corrupt))
    assert [m.value for m in buffer.take(2)] == [b"0", b"1"]
    assert buffer.byte_count == 40
    rest = buffer.take(10)

    assert [(m.value, m.partition, m.offset, m.timestamp_ms) for m in rest] == [
        (b"2", A, 2, 9),
        (b"3", B, 7, 9),
    ]
    assert (buffer.byte_count, bool(buffer)) == (0, False)


def test_paused_partitions_keep_their_place() -> None:
    """What is fetched of them stays, before what came later."""
    buffer, corrupt = Buffer(), deque()
    buffer.put(decode(A, answer(b"0"), 10, corrupt))
    buffer.put(decode(B, answer(b"1"), 10, corrupt))
    buffer.put(decode(A, answer(b"2", base=1), 10, corrupt))
    assert [m.value for m in buffer.take(10, frozenset({A}))] == [b"1"]

    assert [m.value for m in buffer.take(10)] == [b"0", b"2"]


def test_dropped_partitions_leave_nothing() -> None:
    """Neither messages nor bytes."""
    buffer, corrupt = Buffer(), deque()
    for partition in (A, B, A):
        buffer.put(decode(partition, answer(b"x"), 10, corrupt))
    buffer.drop([A])

    assert (buffer.byte_count, buffer.sizes()) == (10, [(B, 10)])


def test_corrupt_messages_are_passed_over_and_counted() -> None:
    """A wrong checksum, and attributes that lie; the offsets of the others do not shift."""
    broken = answer(b"0", b"1", b"2")
    broken.messages[0].checkSum = 5
    broken.messages[1].flag = 1
    corrupt: deque[int] = deque(maxlen=10)
    buffer = Buffer()
    buffer.put(decode(A, broken, 30, corrupt))

    assert [(m.value, m.offset) for m in buffer.take(10)] == [(b"2", 2)]
    assert list(corrupt) == [0, 1]


def test_an_original_broker_tells_no_spans() -> None:
    """Offsets are counted on from where the answer begins."""
    chunk = decode(A, answer(b"0", b"1", base=28, spans=False), 20, deque())

    assert [m.offset for m in chunk.messages] == [28, 29]
    assert chunk.next_offset == 30

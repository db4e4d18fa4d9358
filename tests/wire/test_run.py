"""Runs are exactly what protobuf writes, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import named, raw
from tube.errors import BadRequestError, WireError
from tube.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX
from tube.pb.BrokerService_pb2 import GetMessageResponseB2C, TransferedMessage
from tube.wire import frame, rpc, run
from tube.wire.message import check_sum, filter_hash, pack

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
hashes = st.none() | int32s | st.integers(-2, 2)
sizes = st.sampled_from([0, 1, 127, 128, 990, 1024, 1025, 16_380, 16_390, 70_000])


def one(data: bytes = b"abc", flag: int = 0, code: int | None = None, number: int = 5) -> bytes:
    return run.encode_message(number, check_sum(data), data, flag, code)


def reference(number: int, total: int, data: bytes, flag: int, code: int | None) -> bytes:
    sent = TransferedMessage(messageId=number, checkSum=total, payLoadData=data, flag=flag)
    if code is not None:
        sent.type_hash = code
    return GetMessageResponseB2C(messages=[sent]).SerializePartialToString()


@given(int64s, int32s, sizes, int32s, hashes)
def test_a_message_is_written_as_protobuf_writes_it(number, total, size, flag, code):
    """Small and large messages, negative numbers, with and without a type."""
    data = bytes(size)
    encoded = run.encode_message(number, total, data, flag, code)

    assert encoded == reference(number, total, data, flag, code)


def test_the_golden_answer_holds_a_run():
    """The messages of a real answer are a run; putting it into an answer copies bytes."""
    (golden,) = frame.FrameDecoder().feed(raw(named("get_message_response")))
    answer = rpc.parse(GetMessageResponseB2C, rpc.decode_reply(golden).body)
    encoded = b"".join(
        run.encode_message(m.messageId, m.checkSum, m.payLoadData, m.flag) for m in answer.messages
    )

    assert encoded in golden.payload
    assert len(run.spans(encoded)) == 2
    run.verify(encoded, 2)


@given(st.lists(sizes.map(bytes), max_size=8))
def test_positions_are_found(payloads):
    """Starts and skips agree with how the run was made."""
    messages = [one(data) for data in payloads]
    joined = b"".join(messages)
    starts = [sum(map(len, messages[:i])) for i in range(len(messages) + 1)]

    assert run.spans(joined) == starts[:-1]
    assert [run.skip(joined, count) for count in range(len(starts))] == starts


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_or_whole(garbage):
    """Only WireError and BadRequestError come out of random bytes."""
    for read in (run.spans, lambda b: run.skip(b, 2), lambda b: run.select(b, {1})):
        with contextlib.suppress(WireError):
            read(garbage)
    with contextlib.suppress(BadRequestError):
        run.verify(garbage, 1)


@given(st.data())
def test_mutated_runs_are_refused_or_sound(data):
    """A flipped bit in a message is noticed, or harmless: then its checksum is right."""
    sound = one(b"hello", 0, 7) + one(*pack(b"body", {"a": "1"}), 9)
    broken = bytearray(sound)
    broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        run.verify(bytes(broken), 2)
    except BadRequestError:
        return
    answer = GetMessageResponseB2C()
    answer.MergeFromString(bytes(broken))
    assert len(answer.messages) == 2
    assert all(m.checkSum == check_sum(m.payLoadData) for m in answer.messages)


@pytest.mark.parametrize("cut", range(1, len(one())))
def test_a_cut_run_is_refused(cut):
    """Every proper prefix of a message is not a run."""
    for piece in (one()[:cut], one() + one()[:cut]):
        with pytest.raises(WireError):
            run.spans(piece)
    with pytest.raises(WireError):
        run.skip(one()[:cut], 1)
    assert run.skip(one() + one()[:cut], 1) == len(one())


def test_more_messages_than_there_are_cannot_be_skipped():
    """Asking past the end is an error, not the end."""
    with pytest.raises(WireError):
        run.skip(one(), 2)


def message_of(**fields: object) -> bytes:
    encoded = TransferedMessage(**fields).SerializePartialToString()
    return b"\x22" + bytes([len(encoded)]) + encoded


@pytest.mark.parametrize(
    ("wrong", "count", "text"),
    [
        (b"", 0, "message count 0"),
        (b"", BATCH_COUNT_MAX + 1, "message count 65537"),
        (b"", 1, "0 messages were sent, 1 announced"),
        (one(), 2, "1 messages were sent, 2 announced"),
        (bytes(BATCH_BYTES_MAX + 1), 1, "limit is"),
        (b"\x08\x01", 1, "no message starts"),
        (b"\x22\x02\x08", 1, "lacks 1 bytes"),
        (b"\x22\xff", 1, "not a run"),
        (b"\x22\x02\x0f\x0f", 1, "not protobuf"),
        (message_of(messageId=1), 1, "lack required fields: messages"),
        (one(number=-1), 1, "message 0: message id -1 is negative"),
        (one() + one(b"a", 1), 2, "message 1: flag promises attributes"),
        (one(b"\x00\x00\x00\x09abc", 1), 1, "attributes have 9 bytes"),
        (run.encode_message(1, 2, b"abc", 0), 1, "checksum is 2"),
    ],
)
def test_a_wrong_batch_is_refused(wrong, count, text):
    """What a client made is checked before it is stored."""
    with pytest.raises(BadRequestError, match=text):
        run.verify(wrong, count)


def test_a_batch_may_hold_its_fields_in_any_order():
    """Every protobuf parser reads it; only what is not a message could change the rest of an answer."""
    inner = TransferedMessage.FromString(one()[2:])
    parts = [b"\x10" + one()[2:].split(b"\x10", 1)[1], b"\x08\x05"]
    swapped = b"".join(parts)
    assert TransferedMessage.FromString(swapped) == inner
    run.verify(b"\x22" + bytes([len(swapped)]) + swapped, 1)
    for other in (b"\x08\x00", b"\xa2\x00\x00", b"\x28\x05"):
        with pytest.raises(BadRequestError, match="not a run"):
            run.verify(one() + other, 1)


@given(st.lists(st.tuples(st.binary(max_size=20), hashes), max_size=8), st.sets(st.integers(-2, 2)))
def test_a_filter_keeps_exactly_its_types(messages, wanted):
    """Messages of a wanted type stay in order; those without a type never pass."""
    encoded = [one(data, 0, code) for data, code in messages]
    expected = [i for i, (_, code) in enumerate(messages) if code in wanted]
    selection = run.select(b"".join(encoded), frozenset(wanted))

    assert selection == (b"".join(encoded[i] for i in expected), expected)


def test_a_type_is_not_read_from_the_data():
    """Data that looks like a type hash at the end of a message does not pass for one."""
    assert run.select(one(b"\xcd\x3e\x01\x00"), {0x0120_0001, 1}).indices == []


@given(int32s)
def test_a_filter_bit_is_one_or_two_of_64_bits(code):
    """Small enough for a 64-bit field, and the same for signed and unsigned forms."""
    mask = run.filter_bit(code)

    assert mask.bit_count() in (1, 2)
    assert mask < 2**64
    assert mask == run.filter_bit(code & 0xFFFF_FFFF)


def test_filter_bits_never_change():
    """Stored blocks carry them."""
    masks = [run.filter_bit(filter_hash(text)) for text in ("t1", "t2", "order_created")]
    assert [f"{mask:016x}" for mask in masks] == [
        "4000400000000000",
        "0000000200400000",
        "0000008000000002",
    ]

"""Receipts written by hand are what protobuf writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.pb.BrokerService_pb2 import SendMessageResponseB2P
from tube.wire import feature, rpc
from tube.wire.receipt import encode_receipt_frames, encode_receipts
from tube.wire.rpc import Method

numbers = st.integers(0, 2**63 - 1)


@given(
    st.lists(st.integers(1, 2**63 - 1), max_size=5), st.integers(0, 2**62), numbers, st.booleans()
)
def test_receipts_are_the_bytes_of_protobuf(
    ids: list[int], offset: int, time_ms: int, durable: bool
) -> None:
    """For every id, offset and time, in order."""
    receipts = encode_receipts(ids, offset, time_ms, durable=durable)
    expected = [
        SendMessageResponseB2P(
            success=True,
            errCode=200,
            errMsg=str(message_id),
            requireAuth=False,
            messageId=message_id,
            appendTime=time_ms,
            appendOffset=offset + i,
            durable=durable,
        ).SerializeToString()
        for i, message_id in enumerate(ids)
    ]

    assert receipts == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 300), st.integers(1, 2**63 - 1)),
        max_size=5,
    ),
    st.integers(0, 2**62),
    numbers,
)
def test_frames_of_receipts_are_those_of_single_replies(
    calls: list[tuple[int, int, int]], offset: int, time_ms: int
) -> None:
    """Whatever serials and versions the callers have."""
    serials, versions, ids = ([call[i] for call in calls] for i in range(3))
    receipts = encode_receipts(ids, offset, time_ms, durable=True)
    expected = b"".join(
        rpc.encode_reply(serial, Method.SEND_MESSAGE, version, receipt)
        for serial, version, receipt in zip(serials, versions, receipts, strict=True)
    )

    assert encode_receipt_frames(serials, versions, ids, offset, time_ms, durable=True) == expected


def test_features_are_single_bits() -> None:
    """They can be combined and told apart, and ``ALL`` has each of them."""
    bits = [feature.ONE_BLOCK, feature.WAIT, feature.SPANS, feature.BATCH]

    assert all(bit.bit_count() == 1 for bit in bits)
    assert sum(bits) == feature.ALL

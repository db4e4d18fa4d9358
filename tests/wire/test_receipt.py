"""Receipts written by hand are what protobuf writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.pb.BrokerService_pb2 import SendMessageResponseB2P
from tube.wire import feature
from tube.wire.receipt import encode_receipts

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


def test_features_are_single_bits() -> None:
    """They can be combined and told apart, and ``ALL`` has each of them."""
    bits = [feature.ONE_BLOCK, feature.WAIT, feature.SPANS, feature.BATCH]

    assert all(bit.bit_count() == 1 for bit in bits)
    assert sum(bits) == feature.ALL

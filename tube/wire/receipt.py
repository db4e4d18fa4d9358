"""The answer of a successful SendMessage, written by hand because every message needs one.

Equal to what protobuf writes for SendMessageResponseB2P.

Source: spec section 3.6; old Java clients read the message id from ``errMsg``.
"""

from __future__ import annotations

from tube.wire import varint


def encode_receipts(
    message_ids: list[int], base_offset: int, append_time_ms: int, *, durable: bool
) -> list[bytes]:
    """Return the answers' bodies for messages that were appended one after the other."""
    encode = varint.encode
    time = b"\x30" + encode(append_time_ms) + b"\x38"
    tail = b"\xd8\x3f\x01" if durable else b"\xd8\x3f\x00"
    receipts = []
    for offset, message_id in enumerate(message_ids, base_offset):
        text = b"%d" % message_id
        receipts.append(
            b"\x08\x01\x10\xc8\x01\x1a%c%b\x20\x00\x28%b%b%b%b"
            % (len(text), text, encode(message_id), time, encode(offset), tail)
        )
    return receipts

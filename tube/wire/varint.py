"""Protobuf's variable-length integers: seven bits per byte, lowest first, high bit = more follow.

Source: Protocol Buffers, "Encoding"; used by spec section 1.1.
"""

from __future__ import annotations

from tube.errors import WireError

BITS_MAX = 64
"""Longest integer; protobuf writes negative ones as 64-bit two's complement in ten bytes."""

_ONE_BYTE = [bytes([number]) for number in range(128)]


def encode(number: int) -> bytes:
    """Return the varint of ``number``, a negative one as protobuf's int32 and int64 do."""
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    if 0 <= number < 16384:  # most lengths
        return bytes((number & 127 | 128, number >> 7))
    if 0 < number >> 28 < 128:
        return _five_bytes(number)
    if 0 < number >> 56 < 128:
        return _nine_bytes(number)
    number &= (1 << BITS_MAX) - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _five_bytes(n: int) -> bytes:
    """Most checksums; a third of the time of the loop."""
    return bytes(
        (n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28)
    )


def _nine_bytes(n: int) -> bytes:
    """Message ids; half the time of the loop."""
    return bytes(
        (
            n & 127 | 128,
            n >> 7 & 127 | 128,
            n >> 14 & 127 | 128,
            n >> 21 & 127 | 128,
            n >> 28 & 127 | 128,
            n >> 35 & 127 | 128,
            n >> 42 & 127 | 128,
            n >> 49 & 127 | 128,
            n >> 56,
        )
    )


def decode(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned integer that starts at ``at``, and the position after it.

    Raises:
        WireError: it does not end within ``data`` or within 64 bits.
    """
    number = shift = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> BITS_MAX:
                break
            return number, position + 1
        shift += 7
    raise WireError(f"varint at byte {at} does not end")

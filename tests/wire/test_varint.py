"""Varints are those of protobuf."""

from __future__ import annotations

import pytest
from google.protobuf.internal.encoder import _EncodeVarint
from hypothesis import given
from hypothesis import strategies as st

from tube.errors import WireError
from tube.wire import varint

edges = [2**n + d for n in range(0, 64, 7) for d in (-1, 0, 1)] + [2**64 - 1, 2**63 - 1]


def reference(number: int) -> bytes:
    out = bytearray()
    _EncodeVarint(out.extend, number % 2**64)
    return bytes(out)


@given(st.integers(-(2**63), 2**64 - 1) | st.sampled_from(edges))
def test_numbers_come_back(number):
    """Protobuf writes the same bytes, and they give the number modulo 2**64."""
    encoded = varint.encode(number)

    assert encoded == reference(number)
    assert varint.decode(b"ab" + encoded + b"c", 2) == (number % 2**64, 2 + len(encoded))


@pytest.mark.parametrize("number", edges)
def test_edges_between_lengths(number):
    """Every length has its own first and last number."""
    assert varint.encode(number) == reference(number)


@pytest.mark.parametrize("broken", [b"", b"\x80", b"\xff" * 9, b"\xff" * 10, b"\xff" * 9 + b"\x02"])
def test_endless_or_too_large_numbers_are_refused(broken):
    """A varint ends within the bytes and within 64 bits."""
    with pytest.raises(WireError, match="does not end"):
        varint.decode(broken, 0)

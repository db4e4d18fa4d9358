"""TubeMQ's frames: a payload cut into blocks.

All integers are big-endian::

    token:u32 (FF 7F F4 FE)  serial:u32  block_count:u32  block_count x (length:u32 bytes)

The payload is the blocks put together; where they were cut means nothing.  The original C++ client
takes only blocks of 1 to 8192 bytes, Java and Go take any length.

Source: spec sections 1.1 and 1.2 (NettyProtocolDecoder.java, tubemq_codec.go, tubemq_codec.h).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tube.errors import FrameTooLargeError, WireError
from tube.limits import BLOCK_BYTES_MAX, BLOCK_COUNT_MAX, FRAME_BYTES_MAX

TOKEN = 0xFF7FF4FE
"""First four bytes of every frame."""

PREFIX_BYTES = 128
"""What of a large frame must be there before its limit is asked for: the envelope's head."""

_HEAD = struct.Struct(">III")
_HEAD_AND_LENGTH = struct.Struct(">IIII")
_LENGTH = struct.Struct(">I")
_TOKEN_BYTES = TOKEN.to_bytes(4, "big")
_new = tuple.__new__  # half the time of a NamedTuple's own constructor, which is Python


class Frame(NamedTuple):
    """One payload with the serial number that joins reply to call (unsigned 32 bits)."""

    serial: int
    payload: bytes


class FrameDecoder:
    """Cuts a stream of bytes into frames.

    After a fault nothing can be decoded any more, so every further ``feed`` raises it again.
    Frames that came before the fault in the same chunk are not lost: they are returned, ``fault``
    is set and the *next* ``feed`` raises.  So: feed, serve the frames, close if ``fault`` is set.

    ``payload_bytes_max`` may be set at any time and holds from the next block on; ``fault`` is the
    error that broke the stream, or None.

    Args:
        raise_limit: asked once for every frame that announces more than ``payload_bytes_max``, with
            the first ``PREFIX_BYTES`` of its payload (or more); returns how many payload bytes this
            frame may have, or raises WireError.  Without it the limit holds for all.
    """

    def __init__(
        self,
        payload_bytes_max: int = FRAME_BYTES_MAX,
        raise_limit: Callable[[bytes], int] | None = None,
    ) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._raise_limit = raise_limit
        self._raised: int | None = None  # limit of the frame that is being read
        self.fault: WireError | None = None
        self._rest = bytearray()  # bytes that do not make a whole head or block yet
        self._rest_bytes_needed = 0  # below this, looking at _rest again is a waste
        self._serial = 0
        self._blocks_left = 0  # > 0: inside a frame of several blocks
        self._blocks: list[bytes] = []
        self._payload_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        return len(self._rest) + self._payload_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes of the stream and return the frames that they complete.

        Raises:
            FrameTooLargeError: a frame announced more than ``payload_bytes_max``; nothing of the
                block that did is kept.
            WireError: the stream is not made of frames.
        """
        if self.fault is not None:
            raise self.fault
        if self._rest:
            self._rest += data
            if len(self._rest) < self._rest_bytes_needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames: list[Frame] = []
        try:
            at = self._decode(data, frames)
        except WireError as error:
            self.fault = error
            self._blocks, self._payload_bytes = [], 0
            if not frames:
                raise
            return frames
        if at < len(data):
            self._rest += data[at:] if at else data
        return frames

    def _decode(self, data: bytes, frames: list[Frame]) -> int:
        """Append all complete frames; return the position of the first byte not used."""
        at, end = 0, len(data)
        while True:
            if self._blocks_left:
                at = self._decode_blocks(data, at, frames)
                if self._blocks_left:
                    return at
            if end - at < 16:
                self._check_start(data, at, end)
                self._rest_bytes_needed = 16
                return at
            # The usual frame has one block: one unpack and one slice.
            token, serial, count, length = _HEAD_AND_LENGTH.unpack_from(data, at)
            if token != TOKEN or count != 1 or length > self.payload_bytes_max:
                self._begin(token, serial, count)
                at += 12
                continue
            stop = at + 16 + length
            if stop > end:
                self._rest_bytes_needed = 16 + length
                return at
            frames.append(_new(Frame, (serial, data[at + 16 : stop])))
            at = stop

    def _begin(self, token: int, serial: int, count: int) -> None:
        """Enter a frame of several blocks or of unusual size, or refuse it."""
        if token != TOKEN:
            raise WireError(f"frame starts with {token:08x}, not with {TOKEN:08x}")
        if not 1 <= count <= BLOCK_COUNT_MAX:
            raise WireError(f"block count {count} is not in 1..{BLOCK_COUNT_MAX}")
        self._serial, self._blocks_left, self._blocks, self._payload_bytes = serial, count, [], 0

    def _decode_blocks(self, data: bytes, at: int, frames: list[Frame]) -> int:
        """Go on inside a frame of several blocks; return the position after what was used."""
        end = len(data)
        while self._blocks_left:
            if end - at < 4:
                self._rest_bytes_needed = 4
                return at
            (length,) = _LENGTH.unpack_from(data, at)
            stop = at + 4 + length
            limit = self.payload_bytes_max if self._raised is None else self._raised
            if self._payload_bytes + length > limit:
                start = data[at + 4 : min(stop, at + 4 + PREFIX_BYTES)]
                if not self._allowed(self._payload_bytes + length, limit, start):
                    return at
            if stop > end:
                self._rest_bytes_needed = 4 + length
                return at
            self._blocks.append(data[at + 4 : stop])
            self._payload_bytes += length
            self._blocks_left -= 1
            at = stop
        frames.append(Frame(self._serial, b"".join(self._blocks)))
        self._blocks, self._payload_bytes, self._raised = [], 0, None
        return at

    def _allowed(self, payload_bytes: int, limit: int, start: bytes) -> bool:
        """Say whether the frame may pass its limit; False when too little is there to tell.

        Raises:
            FrameTooLargeError: it may not.
        """
        if self._raised is None and self._raise_limit is not None:
            prefix = b"".join([*self._blocks, start])
            wanted = min(PREFIX_BYTES, payload_bytes)
            if len(prefix) < wanted:
                self._rest_bytes_needed = 4 + wanted - self._payload_bytes
                return False
            limit = self._raised = self._raise_limit(prefix)
        if payload_bytes > limit:
            raise FrameTooLargeError(f"frame announces {payload_bytes} bytes, limit is {limit}")
        return True

    @staticmethod
    def _check_start(data: bytes, at: int, end: int) -> None:
        """Refuse a wrong token or block count before the whole head is there."""
        if not _TOKEN_BYTES.startswith(data[at : min(at + 4, end)]):
            raise WireError(f"frame starts with {data[at : at + 4].hex()}, not with {TOKEN:08x}")
        if end - at >= 12:
            count = _HEAD.unpack_from(data, at)[2]
            if not 1 <= count <= BLOCK_COUNT_MAX:
                raise WireError(f"block count {count} is not in 1..{BLOCK_COUNT_MAX}")


def encode(serial: int, payload: bytes, block_bytes: int = BLOCK_BYTES_MAX) -> bytes:
    """Return the frame of ``payload`` in blocks of at most ``block_bytes``.

    Raises:
        FrameTooLargeError: the payload needs more blocks, or bytes, than a peer takes.
    """
    if len(payload) <= block_bytes:
        return _HEAD_AND_LENGTH.pack(TOKEN, serial, 1, len(payload)) + payload
    return b"".join(encode_parts(serial, [payload], block_bytes))


def encode_parts(
    serial: int, parts: Sequence[bytes | memoryview], block_bytes: int | None
) -> list[bytes | memoryview]:
    """Return pieces that, written one after the other, are the frame of the joined ``parts``.

    Args:
        parts: not copied, only sliced; they must not change before the pieces are written.
        block_bytes: longest block, at least 1; None puts everything into one block, which only
            Java, Go and our own client understand.

    Raises:
        FrameTooLargeError: the payload needs more blocks, or bytes, than a peer takes.
    """
    total = sum(map(len, parts))
    if total > FRAME_BYTES_MAX:
        raise FrameTooLargeError(f"frame has {total} bytes, limit is {FRAME_BYTES_MAX}")
    if block_bytes is None or total <= block_bytes:
        return [_HEAD_AND_LENGTH.pack(TOKEN, serial, 1, total), *parts]
    count = -(-total // block_bytes)
    if count > BLOCK_COUNT_MAX:
        raise FrameTooLargeError(f"frame has {count} blocks, limit is {BLOCK_COUNT_MAX}")
    pieces: list[bytes | memoryview] = [_HEAD.pack(TOKEN, serial, count)]
    room, left = 0, total
    for part in parts:
        view, at = memoryview(part), 0
        while at < len(view):
            if not room:
                room = min(block_bytes, left)
                left -= room
                pieces.append(_LENGTH.pack(room))
            taken = min(room, len(view) - at)
            pieces.append(view[at : at + taken])
            room -= taken
            at += taken
    return pieces

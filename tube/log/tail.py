"""The newest blocks in memory, so that a consumer at the head never reads a file."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable

from tube.log.block import Block

_BLOCK_COST_BYTES = 400
"""What a block's objects take beside its payload, so that tiny blocks count too (measured: 380)."""

_LOOSE_MAX = 1024
"""Evicted entries at the front of a list before it is cut; cutting each time would be quadratic."""


class _Tail:
    """The cached blocks of one partition: contiguous offsets, ``first`` indexes the oldest."""

    __slots__ = ("blocks", "first", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.blocks: list[Block | None] = []
        self.first = 0

    def forget_oldest(self) -> Block | None:
        """Give up the oldest block."""
        block = self.blocks[self.first]
        self.blocks[self.first] = None
        self.first += 1
        if self.first > _LOOSE_MAX and self.first * 2 > len(self.blocks):
            del self.offsets[: self.first]
            del self.blocks[: self.first]
            self.first = 0
        return block


class TailCache:
    """At most ``bytes_max`` bytes of the newest blocks of all partitions; the oldest go first.

    Callers: one thread.  Keys are whatever names a partition.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tails: dict[Hashable, _Tail] = {}
        self._order: deque[tuple[Hashable, _Tail]] = deque()
        self._gone = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._tails)

    def put(self, key: Hashable, block: Block) -> None:
        """Add the newest block of a partition.

        When it does not continue what is cached, that is forgotten: a read never skips a block.
        """
        tail = self._tails.get(key)
        if tail is not None and tail.blocks[-1].end_offset != block.base_offset:  # type: ignore[union-attr]  # a kept tail ends with a block
            self.drop(key)
            tail = None
        if tail is None:
            tail = self._tails[key] = _Tail()
        tail.offsets.append(block.base_offset)
        tail.blocks.append(block)
        self._order.append((key, tail))
        self.bytes += len(block.payload) + _BLOCK_COST_BYTES
        while self.bytes > self._bytes_max:
            self._evict()

    def _evict(self) -> None:
        """Forget the block that was put first of all."""
        key, tail = self._order.popleft()
        if self._tails.get(key) is not tail:
            self._gone -= 1  # dropped before
            return
        block = tail.forget_oldest()
        if block is not None:
            self.bytes -= len(block.payload) + _BLOCK_COST_BYTES
        if tail.first == len(tail.blocks):
            del self._tails[key]

    def read(self, key: Hashable, offset: int, bytes_max: int) -> list[Block] | None:
        """Return the blocks from the one that contains ``offset`` on, up to ``bytes_max`` of payload.

        At least one; none when ``offset`` is just behind the newest; None when the cache
        does not hold the offset.
        """
        tail = self._tails.get(key)
        if tail is None:
            return None
        i = bisect_right(tail.offsets, offset, tail.first) - 1
        if i < tail.first:
            return None
        found: list[Block] = []
        size = 0
        for j in range(i, len(tail.blocks)):
            block = tail.blocks[j]
            assert block is not None
            size += len(block.payload)
            if found and size > bytes_max:
                break
            if block.end_offset > offset:
                found.append(block)
        if found or tail.blocks[-1].end_offset == offset:  # type: ignore[union-attr]  # as above
            return found
        return None

    def drop(self, key: Hashable) -> None:
        """Forget a partition."""
        tail = self._tails.pop(key, None)
        if tail is not None:
            for block in tail.blocks[tail.first :]:
                assert block is not None
                self.bytes -= len(block.payload) + _BLOCK_COST_BYTES
            self._gone += len(tail.blocks) - tail.first
            tail.blocks.clear()  # its places in the order still refer to it
            if self._gone > _LOOSE_MAX and self._gone * 2 > len(self._order):
                tails = self._tails
                self._order = deque(e for e in self._order if tails.get(e[0]) is e[1])
                self._gone = 0

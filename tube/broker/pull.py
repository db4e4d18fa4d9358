"""Cuts blocks of the log into the answer of a pull.

The messages are never decoded: whole blocks are passed on as they are, and only where a pull begins or
ends inside a block, or filters, is a block's run walked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tube.log.block import Block
from tube.wire import run


class Span(NamedTuple):
    """Consecutive messages of an answer: offset of the first, how many, when they were appended."""

    base_offset: int
    count: int  # type: ignore[assignment]  # the field's word, not tuple's method
    append_time_ms: int


@dataclass(slots=True)
class Cut:
    """An answer: pieces of runs, what they are, and where the next pull goes on."""

    parts: list[bytes | memoryview] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    count: int = 0
    byte_count: int = 0
    next_offset: int = 0

    def add(self, part: bytes | memoryview, base_offset: int, count: int, time_ms: int) -> None:
        """Append ``count`` messages."""
        self.parts.append(part)
        self.byte_count += len(part)
        self.add_span(base_offset, count, time_ms)

    def add_span(self, base_offset: int, count: int, time_ms: int) -> None:
        """Say what the parts hold; neighbours of one append time become one span."""
        self.count += count
        if self.spans:
            last = self.spans[-1]
            if last.base_offset + last.count == base_offset and last.append_time_ms == time_ms:
                self.spans[-1] = Span(last.base_offset, last.count + count, time_ms)
                return
        self.spans.append(Span(base_offset, count, time_ms))


def cut(
    blocks: list[Block],
    offset: int,
    bytes_max: int,
    *,
    end_offset: int | None = None,
    filters: frozenset[int] = frozenset(),
) -> Cut:
    """Take messages from ``offset`` on, about ``bytes_max`` bytes of them, and at least one if there is any.

    Args:
        blocks: consecutive blocks, the first of which contains ``offset`` or begins after it.
        end_offset: messages from here on are left out.
        filters: hashes of message types; empty takes all.  What does not match is passed over: it counts for
            ``next_offset`` but not for the bytes.
    """
    answer = Cut(next_offset=offset)
    for block in blocks:
        room = bytes_max - answer.byte_count
        stop = block.end_offset
        if end_offset is not None:
            stop = min(stop, end_offset)
        if stop <= answer.next_offset:
            continue
        if answer.count and room < len(block.payload):
            break
        if filters and not _may_match(block, filters):
            answer.next_offset = stop
            continue
        begin = max(block.base_offset, answer.next_offset)
        _add_block(answer, block, begin, stop, room, filters)
        if answer.next_offset < stop:
            break
    return answer


def _may_match(block: Block, filters: frozenset[int]) -> bool:
    """Whether the block's Bloom bits allow any of the filters."""
    bits = block.filter_bits
    return any(bits & (mask := run.filter_bit(value)) == mask for value in filters)


def _add_block(
    answer: Cut, block: Block, begin: int, stop: int, room: int, filters: frozenset[int]
) -> None:
    whole = begin == block.base_offset and stop == block.end_offset
    if whole and not filters and (len(block.payload) <= room or block.count == 1):
        answer.add(block.payload, begin, block.count, block.append_time_ms)
        answer.next_offset = stop
        return
    payload = memoryview(block.payload)
    starts = [*run.spans(bytes(payload)), len(payload)]
    first = begin - block.base_offset
    last = min(stop - block.base_offset, len(starts) - 1)
    limit = starts[first] + max(room, 1)
    taken = first + 1
    while taken < last and starts[taken + 1] <= limit:
        taken += 1
    piece = payload[starts[first] : starts[taken]]
    if filters:
        _add_matching(answer, piece, begin, filters, block.append_time_ms)
    else:
        answer.add(piece, begin, taken - first, block.append_time_ms)
    answer.next_offset = stop if taken == last else block.base_offset + taken


def _add_matching(
    answer: Cut, piece: memoryview, begin: int, filters: frozenset[int], time_ms: int
) -> None:
    selection = run.select(bytes(piece), filters)
    if not selection.indices:
        return
    answer.parts.append(selection.kept)
    answer.byte_count += len(selection.kept)
    for index in selection.indices:
        answer.add_span(begin + index, 1, time_ms)

"""The segments of one partition as one log.

Readers see a ``View``, which is replaced as a whole when the log grows, rolls or loses segments; they
take no lock.  What lies behind a view's ``end`` is being written and not yet kept.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from tube.errors import NotFoundError, OffsetOutOfRangeError, StoreError
from tube.log.block import HEADER_BYTES, Block, Damage, Placed
from tube.log.files import sync_directory
from tube.log.index import NO_TIME, Entry
from tube.log.retention import Retention, SegmentFacts, expired
from tube.log.segment import Place, Segment
from tube.log.values import Bounds, Dropped, Gap, LogKey, ReadResult

_READ_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes that a read takes from the file at a time."""


class View(NamedTuple):
    """What readers may see: all segments, the last one up to ``end``."""

    segments: tuple[Segment, ...]
    bases: tuple[int, ...]
    end: int
    next_offset: int
    last_append_ms: int | None

    @property
    def bytes(self) -> int:
        """The size of the log."""
        return sum(segment.size for segment in self.segments[:-1]) + self.end

    def reach(self, i: int) -> Entry:
        """Return the end of segment ``i``: the offset and position behind its last block."""
        if i == len(self.segments) - 1:
            return Entry(self.next_offset, self.end, NO_TIME)
        return Entry(self.bases[i + 1], self.segments[i].size, NO_TIME)


class PartitionLog:
    """One partition.

    Callers: the disk thread changes; any thread reads.
    """

    __slots__ = ("_place", "directory", "dropped", "key", "read_only", "view")

    def __init__(self, place: Place, key: LogKey, directory: Path, view: View) -> None:
        self._place = place
        self.key = key
        self.directory = directory
        self.view = view
        self.dropped = False
        self.read_only: str | None = None

    @classmethod
    def create(cls, place: Place, key: LogKey, directory: Path) -> PartitionLog:
        """Begin an empty log in the existing ``directory``, durably."""
        segment = Segment.create(place, directory, 0)
        return cls(place, key, directory, View((segment,), (0,), 0, 0, None))

    # Changes, in the disk thread

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self.view.segments[-1]

    def roll_if_due(self, segment_bytes: int, age_ms: int, now_ms: int) -> Segment | None:
        """Begin a new segment when the active one is full or old; return the one that was sealed."""
        active = self.active
        first_ms = active.first_append_ms
        if active.size < segment_bytes and (first_ms is None or now_ms - first_ms < age_ms):
            return None
        return self.roll()

    def roll(self) -> Segment | None:
        """Begin a new segment unless the active one is empty; return the one that was sealed."""
        view = self.view
        active = view.segments[-1]
        if active.size == 0:
            return None
        fresh = Segment.create(self._place, self.directory, view.next_offset)
        active.seal(view.next_offset)
        segments = (*view.segments, fresh)
        bases = (*view.bases, view.next_offset)
        self.view = View(segments, bases, 0, view.next_offset, view.last_append_ms)
        return active

    def publish(self, blocks: list[Block]) -> None:
        """Let readers see blocks that were written at the end of the active segment."""
        view = self.view
        active = view.segments[-1]
        position = view.end
        last_ms = view.last_append_ms
        for block in blocks:
            active.note(block.base_offset, position, block.append_time_ms)
            position += HEADER_BYTES + len(block.payload)
            if last_ms is None or block.append_time_ms > last_ms:
                last_ms = block.append_time_ms
        active.size = position
        self.view = View(view.segments, view.bases, position, blocks[-1].end_offset, last_ms)

    def roll_if_expired(self, policy: Retention, now_ms: int) -> Segment | None:
        """Begin a new segment when all of the active one may go; return the one that was sealed."""
        last_ms = self.view.last_append_ms
        if policy.age_ms is None or last_ms is None or now_ms - last_ms < policy.age_ms:
            return None
        return self.roll()

    def retain(self, policy: Retention, now_ms: int) -> list[Dropped]:
        """Drop what the policy lets go, oldest first."""
        view = self.view
        facts = [_facts(segment) for segment in view.segments]
        count = len(expired(facts, policy, now_ms))
        if count == 0:
            return []
        self.view = view._replace(segments=view.segments[count:], bases=view.bases[count:])
        dropped = []
        for i in range(count):
            segment = view.segments[i]
            segment.dropped = True
            segment.let_go()
            self._unlink(segment)
            behind = view.bases[i + 1]
            key = self.key
            base = segment.base_offset
            dropped.append(Dropped(key.topic_id, key.partition_id, base, behind, segment.size))
        sync_directory(self._place.disk, self.directory)
        return dropped

    def _unlink(self, segment: Segment) -> None:
        """Delete a segment's files."""
        disk = self._place.disk
        disk.unlink(segment.path)
        if os.path.exists(segment.index_path):
            disk.unlink(segment.index_path)

    def drop(self) -> None:
        """Take the log out of use; its files are the caller's matter."""
        self.dropped = True
        for segment in self.view.segments:
            segment.dropped = True
            segment.let_go()

    # Reading, in any thread

    def bounds(self, store_read_only: bool) -> Bounds:
        """Return what the log holds."""
        view = self.view
        read_only = store_read_only or self.read_only is not None
        return Bounds(view.bases[0], view.next_offset, view.bytes, read_only, view.last_append_ms)

    def read(self, offset: int, bytes_max: int, end_offset: int | None) -> ReadResult:
        """Read whole blocks from the one that contains ``offset`` on, see ``LogStore.read``."""
        while True:
            view = self.view
            self._check(view, offset)
            try:
                return _Reading(view, offset, bytes_max, end_offset).run()
            except FileNotFoundError as e:
                self._look_again(view, e)

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset whose block was appended at ``time_ms`` or later."""
        while True:
            view = self.view
            try:
                return _offset_at(view, time_ms)
            except FileNotFoundError as e:
                self._look_again(view, e)

    def _check(self, view: View, offset: int) -> None:
        """Refuse an offset that the view does not hold."""
        if not view.bases[0] <= offset <= view.next_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.key.topic_id}/{self.key.partition_id} is not in"
                f" {view.bases[0]}..{view.next_offset}"
            )

    def _look_again(self, view: View, error: FileNotFoundError) -> None:
        """Let a read begin again when a file of its view was dropped meanwhile.

        Raises:
            NotFoundError: the whole partition was deleted.
            StoreError: the file should be there.
        """
        if self.dropped:
            key = self.key
            raise NotFoundError(f"partition {key.topic_id}/{key.partition_id} was deleted")
        if self.view.bases[0] == view.bases[0]:
            raise StoreError(f"{error.filename} is missing") from error


def _facts(segment: Segment) -> SegmentFacts:
    """Return what retention asks about a segment."""
    last_ms = segment.last_append_ms()
    return SegmentFacts(segment.base_offset, segment.size, None if last_ms == NO_TIME else last_ms)


def _offset_at(view: View, time_ms: int) -> int:
    """Look ``time_ms`` up, segment by segment: clocks step back, so their times may overlap."""
    for i, segment in enumerate(view.segments):
        if segment.last_append_ms() < time_ms:
            continue
        start = segment.find_time(time_ms)
        for found in segment.walk(start, view.reach(i).position, payloads=False):
            if isinstance(found, Placed) and found.header.append_time_ms >= time_ms:
                return found.header.base_offset
    return view.next_offset


class _Reading:
    """One read: goes through the segments until it has enough."""

    __slots__ = ("_bytes_max", "_damages", "_end_offset", "_offset", "_result", "_size", "_view")

    def __init__(self, view: View, offset: int, bytes_max: int, end_offset: int | None) -> None:
        self._view = view
        self._offset = offset
        self._bytes_max = bytes_max
        self._end_offset = view.next_offset if end_offset is None else end_offset
        self._result = ReadResult([], [], offset)
        self._damages: list[Damage] = []
        self._size = 0

    def run(self) -> ReadResult:
        """Return the blocks, and the damage between them."""
        view = self._view
        if self._offset >= min(self._end_offset, view.next_offset):
            return self._result
        first = bisect_right(view.bases, self._offset) - 1
        for i in range(first, len(view.segments)):
            if view.bases[i] >= self._end_offset or self._read_segment(i):
                break
        return self._result

    def _read_segment(self, i: int) -> bool:
        """Read on in segment ``i``; True when there is enough."""
        result = self._result
        blocks = result.blocks
        segment = self._view.segments[i]
        reach = self._view.reach(i)
        offset = max(self._result.next_offset, segment.base_offset)
        hint = segment.hint
        start = hint if hint.offset == offset else segment.find_offset(offset)
        wanted = self._bytes_max - self._size + HEADER_BYTES
        slack = 0 if start is hint else 64 * 1024
        chunk_bytes = min(max(wanted + slack, 64 * 1024), _READ_BYTES_MAX)
        for found in segment.walk(start, reach.position, skip_to=offset, chunk_bytes=chunk_bytes):
            if isinstance(found, Damage):
                self._damages.append(found)
                continue
            header = found.header
            base = header.base_offset
            if self._damages:
                self._close_gaps(segment, base)
            size = self._size + header.payload_length
            if base >= self._end_offset or (size > self._bytes_max and blocks):
                if base >= self._end_offset:  # a hole before it is read through
                    result.next_offset = max(result.next_offset, self._end_offset)
                segment.hint = Entry(result.next_offset, found.position, NO_TIME)
                return True
            blocks.append(found.block())
            self._size = size
            result.next_offset = base + header.span
        self._close_gaps(segment, reach.offset)
        self._result.next_offset = reach.offset
        segment.hint = reach
        return self._size >= self._bytes_max

    def _close_gaps(self, segment: Segment, next_offset: int) -> None:
        """Report the damage seen since the last good block, which ends before ``next_offset``."""
        for i, damage in enumerate(self._damages):
            first = max(damage.offset, self._result.next_offset)
            behind = damage.next_offset or next_offset
            if i + 1 < len(self._damages):
                behind = damage.next_offset or self._damages[i + 1].offset
            if behind > first:
                length = damage.end - damage.position
                self._result.gaps.append(Gap(segment.path, damage.position, length, first, behind))
                self._result.next_offset = behind
        self._damages.clear()

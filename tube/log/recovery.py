"""Bringing a data directory up after whatever ended the last run.

Three sources, in this order of trust: the checkpoint says what is synced and need not be looked at; the
journal says, for every acknowledged block behind that, where it lies, and is written there again;
the rest of each segment is walked, its torn tail is cut, damage before good blocks stays and is reported.

What the journal holds is rewritten even where the segment reads well: after a failed sync the page
cache shows bytes that the disk does not have.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tube.log import checkpoint as checkpoint_file
from tube.log import journal as journal_file
from tube.log.block import HEADER_BYTES, Damage
from tube.log.checkpoint import Saved, Synced
from tube.log.directory import DELETED, JOURNAL, TOPICS
from tube.log.files import (
    FileSystem,
    OpenFile,
    create_file,
    remove_tree,
    sync_directory,
    write_all,
)
from tube.log.index import NO_TIME, Entry
from tube.log.journal import Record
from tube.log.partition import PartitionLog, View
from tube.log.segment import Place, Segment, base_offset_of, segment_name
from tube.log.values import LogKey, Quarantine, Recovery

_RUN_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of adjoining blocks that replay writes at once."""


@dataclass(slots=True)
class Replay:
    """What the journals say."""

    blocks: dict[LogKey, dict[int, dict[int, memoryview]]] = field(default_factory=dict)
    """Per partition and segment, the blocks by position."""
    created: set[LogKey] = field(default_factory=set)
    noted: set[int] = field(default_factory=set)
    """Numbers of journals with notes."""
    sizes: dict[int, int] = field(default_factory=dict)

    def take(self, record: Record, recovery: Recovery) -> None:
        """Take one record, in the order of the journal."""
        key = LogKey(record.topic_id, record.partition_id)
        if record.kind == journal_file.APPEND:
            segments = self.blocks.setdefault(key, {})
            segments.setdefault(record.segment_base, {})[record.position] = record.body
        elif record.kind == journal_file.CREATE:
            self.blocks.pop(key, None)
            self.created.add(key)
        elif record.kind == journal_file.NOTE:
            recovery.notes.append(bytes(record.body))


def load_checkpoint(root: Path, home: int, recovery: Recovery) -> Saved:
    """Return what the checkpoint file says; without a good one, everything is looked at."""
    path = root / checkpoint_file.NAME
    try:
        saved = checkpoint_file.decode(path.read_bytes(), home)
    except FileNotFoundError:
        return Saved(0, {})
    if saved is None:
        recovery.warnings.append(f"{path} is damaged; all segments are read instead")
        return Saved(0, {})
    return saved


def read_journals(
    disk: FileSystem, root: Path, home: int, since: int, recovery: Recovery
) -> Replay:
    """Read the journals from number ``since`` on; older ones are deleted."""
    replay = Replay()
    directory = root / JOURNAL
    names = {n: e.name for e in os.scandir(directory) if (n := journal_file.number_of(e.name))}
    for number in sorted(names):
        path = directory / names[number]
        if number < since:
            disk.unlink(str(path))
            continue
        _read_journal(disk, path, home, number, replay, recovery)
    sync_directory(disk, directory)
    return replay


def _read_journal(
    disk: FileSystem, path: Path, home: int, number: int, replay: Replay, recovery: Recovery
) -> None:
    """Take the records of one journal file, and cut its torn tail."""
    content = journal_file.load(path)
    replay.sizes[number] = len(content)
    notes = len(recovery.notes)
    for found in journal_file.records(content, home, number):
        if isinstance(found, Record):
            replay.take(found, recovery)
            continue
        length = found.end - found.position
        if found.torn:
            recovery.cut_bytes += length
            recovery.warnings.append(f"{path}: torn tail of {length} bytes cut")
            file = OpenFile(disk, str(path), os.O_RDWR)
            disk.ftruncate(file.fd, found.position)
            disk.fdatasync(file.fd)
            replay.sizes[number] = found.position
        else:
            recovery.quarantined.append(Quarantine(str(path), found.position, length))
            recovery.warnings.append(
                f"{path}: {length} bytes at {found.position} are unreadable, good records follow"
            )
    if len(recovery.notes) > notes:
        replay.noted.add(number)


@dataclass(slots=True)
class Restored:
    """The partitions as they are now, and the segments whose bytes are not yet synced."""

    logs: dict[LogKey, PartitionLog] = field(default_factory=dict)
    unsynced: list[Segment] = field(default_factory=list)


def restore(place: Place, root: Path, saved: Saved, replay: Replay, recovery: Recovery) -> Restored:
    """Bring every partition of the directory up."""
    restored = Restored()
    topics = root / TOPICS
    for topic in list(os.scandir(topics)):
        if topic.name.startswith(DELETED):
            remove_tree(place.disk, Path(topic.path))
        elif topic.name.isdecimal() and topic.is_dir():
            for entry in os.scandir(topic.path):
                if entry.name.isdecimal() and entry.is_dir():
                    key = LogKey(int(topic.name), int(entry.name))
                    synced = None if key in replay.created else saved.synced.get(key)
                    opening = _Opening(place, key, Path(entry.path), synced, recovery)
                    log = opening.run(replay.blocks.get(key, {}))
                    restored.logs[key] = log
                    restored.unsynced += opening.unsynced
    return restored


class _Opening:
    """The start of one partition."""

    def __init__(
        self, place: Place, key: LogKey, directory: Path, synced: Synced | None, recovery: Recovery
    ) -> None:
        self._place = place
        self._key = key
        self._directory = directory
        self._synced = synced
        self._recovery = recovery
        self._sizes: dict[int, int] = {}
        self.unsynced: list[Segment] = []

    def run(self, blocks: dict[int, dict[int, memoryview]]) -> PartitionLog:
        """Return the partition, with its journaled ``blocks`` in place."""
        self._list()
        for base in sorted(blocks):
            self._replay(base, blocks[base])
        if not self._sizes:  # killed between the directory and its first segment
            create_file(self._place.disk, self._directory / segment_name(0))
            self._sizes[0] = 0
        floor = self._synced.next_offset if self._synced else 0  # given once, never again
        self._check_synced()
        floor = max(floor, self._drop_empty())
        bases = sorted(self._sizes)
        first_scanned = self._synced.segment_base if self._synced else bases[0]
        segments = []
        next_offset = self._synced.next_offset if self._synced else bases[0]
        for i, base in enumerate(bases):
            segment = Segment(self._place, self._directory, base, self._sizes[base])
            segments.append(segment)
            is_last = i == len(bases) - 1
            if base >= first_scanned:
                next_offset = self._scan(segment, max(next_offset, base), is_last)
            if not is_last:
                if base >= first_scanned:
                    segment.seal(bases[i + 1])
                segment.end_offset = bases[i + 1]
                segment.sealed = True
        next_offset = max(next_offset, floor)
        last_ms = _last_append_ms(segments)
        view = View(tuple(segments), tuple(bases), segments[-1].size, next_offset, last_ms)
        return PartitionLog(self._place, self._key, self._directory, view)

    def _list(self) -> None:
        """Note the segment files, and delete indexes without one."""
        names = {entry.name: entry for entry in os.scandir(self._directory)}
        for name, entry in names.items():
            base = base_offset_of(name)
            if base is not None:
                self._sizes[base] = entry.stat().st_size
            elif name.endswith(".idx") and name[:-4] + ".seg" not in names:
                self._place.disk.unlink(entry.path)

    def _check_synced(self) -> None:
        """Believe the checkpoint only if the files are as long as it says."""
        synced = self._synced
        if synced is None:
            return
        size = self._sizes.get(synced.segment_base)
        if size is not None and size >= synced.position:
            return
        if size is not None or synced.segment_base > max(self._sizes):
            self._recovery.warnings.append(
                f"{self._directory}: synced up to {synced.position} of segment"
                f" {synced.segment_base}, but the file is shorter; everything is read again"
            )
        self._synced = None

    def _drop_empty(self) -> int:
        """Delete an empty newest segment; return its base offset, below which none is given.

        The start of a roll that failed or was interrupted leaves one; its predecessor may have grown
        beyond it since.
        """
        bases = sorted(self._sizes)
        newest = bases[-1]
        synced = self._synced.segment_base if self._synced else -1
        if self._sizes[newest] or len(bases) < 2 or newest <= synced:
            return 0
        self._place.disk.unlink(str(self._directory / segment_name(newest)))
        del self._sizes[newest]
        return newest

    def _replay(self, base: int, blocks: dict[int, memoryview]) -> None:
        """Write journaled blocks of segment ``base`` where they belong."""
        synced = self._synced
        if synced is not None:
            if base < synced.segment_base:
                return
            if base == synced.segment_base:
                blocks = {at: b for at, b in blocks.items() if at >= synced.position}
        if not blocks or (base not in self._sizes and self._sizes and base < min(self._sizes)):
            return  # synced, or dropped by retention
        path = self._directory / segment_name(base)
        if base not in self._sizes:
            self._recovery.warnings.append(f"{path} was lost; written again from the journal")
            create_file(self._place.disk, path)
            self._sizes[base] = 0
        file = OpenFile(self._place.disk, str(path), os.O_RDWR)
        for run in _runs(blocks):
            self._rewrite(file, run)
            at, block = run[-1]
            self._sizes[base] = max(self._sizes[base], at + len(block))

    def _rewrite(self, file: OpenFile, run: list[tuple[int, memoryview]]) -> None:
        """Write a run of adjoining blocks, and count those that were not there."""
        disk = self._place.disk
        start = run[0][0]
        length = run[-1][0] + len(run[-1][1]) - start
        there = disk.pread(file.fd, length, start)
        for at, block in run:
            if there[at - start : at - start + len(block)] != block:
                self._recovery.repaired += 1
        write_all(disk, file.fd, [block for _, block in run], start)
        self._recovery.replayed += len(run)

    def _scan(self, segment: Segment, next_offset: int, is_last: bool) -> int:
        """Walk what is not known to be synced; return the offset behind the last block."""
        synced = self._synced
        position = 0
        if synced is not None and synced.segment_base == segment.base_offset:
            position = synced.position
        start = Entry(next_offset if position else segment.base_offset, position, NO_TIME)
        if not segment.load_until(position):
            self._recovery.warnings.append(f"{segment.index_path} does not fit; built again")
            segment.cut_index()
            start = Entry(segment.base_offset, 0, NO_TIME)
        good_end = position
        damages: list[Damage] = []
        for found in segment.walk(start, segment.size):
            if isinstance(found, Damage):
                damages.append(found)
                continue
            header = found.header
            segment.note(header.base_offset, found.position, header.append_time_ms)
            next_offset = max(next_offset, header.base_offset + header.span)
            good_end = max(good_end, found.position + HEADER_BYTES + header.payload_length)
        self._recovery.scanned_bytes += segment.size - start.position
        if segment.size > position:
            self.unsynced.append(segment)
        if is_last and good_end < segment.size:
            self._cut(segment, good_end)
        self._report(segment, damages)
        return next_offset

    def _cut(self, segment: Segment, good_end: int) -> None:
        """Cut a torn tail."""
        length = segment.size - good_end
        segment.cut(good_end)
        self._recovery.cut_bytes += length
        self._recovery.warnings.append(f"{segment.path}: torn tail of {length} bytes cut")

    def _report(self, segment: Segment, damages: Iterable[Damage]) -> None:
        """Report what stays damaged."""
        for damage in damages:
            if damage.position < segment.size:
                length = damage.end - damage.position
                quarantine = Quarantine(segment.path, damage.position, length)
                self._recovery.quarantined.append(quarantine)
                self._recovery.warnings.append(
                    f"{segment.path}: {length} bytes at {damage.position} are damaged and kept,"
                    " reads pass them by"
                )


def _runs(blocks: dict[int, memoryview]) -> Iterable[list[tuple[int, memoryview]]]:
    """Yield the blocks in runs without holes, up to some bytes each."""
    run: list[tuple[int, memoryview]] = []
    end = size = 0
    for at in sorted(blocks):
        block = blocks[at]
        if run and (at != end or size >= _RUN_BYTES_MAX):
            yield run
            run, size = [], 0
        run.append((at, block))
        end = at + len(block)
        size += len(block)
    if run:
        yield run


def _last_append_ms(segments: list[Segment]) -> int | None:
    """Return the latest append time of the newest segment that has a block."""
    for segment in reversed(segments):
        if segment.size:
            last_ms = segment.last_append_ms()
            return None if last_ms == NO_TIME else last_ms
    return None

"""Looking at a data directory from outside, for ``tube log inspect`` and ``tube log verify``.

The directory should not be in use: nothing is locked, and a block being written looks torn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tube.errors import StoreError
from tube.log import checkpoint as checkpoint_file
from tube.log import index as index_format
from tube.log.block import Damage, Placed
from tube.log.directory import JOURNAL, TOPICS, read_identity
from tube.log.files import FileSystem, OpenFiles
from tube.log.index import NO_TIME, Entry, Index
from tube.log.journal import Record, load, number_of, records
from tube.log.segment import Place, Segment, base_offset_of
from tube.log.values import LogKey

_OPEN_FILES_MAX = 16


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the files of one partition hold; damaged blocks are not counted."""

    topic_id: int
    partition_id: int
    segments: int
    first_offset: int
    next_offset: int
    bytes: int
    blocks: int
    messages: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a file that is not as it was written."""

    file: str
    position: int
    what: str


def describe(directory: Path) -> list[PartitionFacts]:
    """Return what each partition holds, by reading all block headers.

    Raises:
        StoreError: this is no data directory, or it cannot be read.
    """
    place = _place(directory)
    return [_describe(key, _segments(place, path)) for key, path in _partitions(directory)]


def verify(directory: Path) -> Iterator[Fault]:
    """Yield every fault of the directory: checksums, order of offsets, indexes, journal, checkpoint.

    Raises:
        StoreError: this is no data directory, or it cannot be read.
    """
    place = _place(directory)
    for _, path in _partitions(directory):
        end_offset = 0
        for segment in _segments(place, path):
            if segment.base_offset < end_offset and segment.size:
                text = (
                    f"begins at offset {segment.base_offset}, the one before ends at {end_offset}"
                )
                yield Fault(segment.path, 0, text)
            latest = NO_TIME
            positions: dict[int, tuple[int, int]] = {}
            for found in segment.walk(_begin(segment), segment.size):
                if isinstance(found, Damage):
                    yield Fault(segment.path, found.position, _what(segment, found))
                    continue
                header = found.header
                positions[found.position] = (header.base_offset, latest)
                latest = max(latest, header.append_time_ms)
                end_offset = header.base_offset + header.span
            yield from _verify_index(place, segment, positions)
    yield from _verify_journals(directory, place.home)
    yield from _verify_checkpoint(directory, place.home)


def _place(directory: Path) -> Place:
    """Return what reading segments takes."""
    home = read_identity(directory)[1]
    return Place(FileSystem(), OpenFiles(_OPEN_FILES_MAX), home=home, interval_bytes=64 * 1024)


def _partitions(directory: Path) -> list[tuple[LogKey, Path]]:
    """Return the partitions' directories, in order."""
    topics = [path for path in (directory / TOPICS).iterdir() if path.name.isdecimal()]
    paths = [path for topic in topics for path in topic.iterdir() if path.name.isdecimal()]
    return sorted((LogKey(int(path.parent.name), int(path.name)), path) for path in paths)


def _segments(place: Place, path: Path) -> list[Segment]:
    """Return the segments of a partition, oldest first."""
    sizes = {
        base: entry.stat().st_size
        for entry in os.scandir(path)
        if (base := base_offset_of(entry.name)) is not None
    }
    return [Segment(place, path, base, sizes[base]) for base in sorted(sizes)]


def _begin(segment: Segment) -> Entry:
    """Return the beginning of a segment."""
    return Entry(segment.base_offset, 0, NO_TIME)


def _describe(key: LogKey, segments: list[Segment]) -> PartitionFacts:
    """Count one partition."""
    first_offset = segments[0].base_offset if segments else 0
    next_offset = segments[-1].base_offset if segments else 0
    blocks = messages = 0
    for segment in segments:
        for found in segment.walk(_begin(segment), segment.size, payloads=False):
            if isinstance(found, Placed):
                blocks += 1
                messages += found.header.message_count
                next_offset = max(next_offset, found.header.base_offset + found.header.span)
    size = sum(segment.size for segment in segments)
    count = len(segments)
    return PartitionFacts(
        key.topic_id, key.partition_id, count, first_offset, next_offset, size, blocks, messages
    )


def _what(segment: Segment, damage: Damage) -> str:
    """Say what a damage is."""
    length = damage.end - damage.position
    if damage.end == segment.size and damage.next_offset is None:
        return f"the last {length} bytes hold no whole block"
    return f"{length} bytes are damaged, from offset {damage.offset} on"


def _verify_index(
    place: Place, segment: Segment, positions: dict[int, tuple[int, int]]
) -> Iterator[Fault]:
    """Compare an index file with its segment."""
    path = Path(segment.index_path)
    if not path.exists():
        return  # it is written with the next checkpoint
    index: Index | None = index_format.decode(
        path.read_bytes(),
        base_offset=segment.base_offset,
        home=place.home,
        interval_bytes=place.interval_bytes,
    )
    if index is None:
        yield Fault(str(path), 0, "the index is damaged")
        return
    for i in range(len(index)):
        entry = index.entry(i)
        if entry.position == segment.size:
            continue  # the end of a sealed segment
        if positions.get(entry.position) != (entry.offset, entry.max_time_ms):
            at = index_format.HEADER_BYTES + i * index_format.ENTRY_BYTES
            yield Fault(str(path), at, f"the entry for offset {entry.offset} is wrong")


def _verify_journals(directory: Path, home: int) -> Iterator[Fault]:
    """Read all records of all journals."""
    for path in sorted((directory / JOURNAL).iterdir()):
        number = number_of(path.name)
        if number is None:
            continue
        for found in records(load(path), home, number):
            if not isinstance(found, Record):
                length = found.end - found.position
                where = "at the end" if found.torn else "before good records"
                yield Fault(str(path), found.position, f"{length} bytes {where} are damaged")


def _verify_checkpoint(directory: Path, home: int) -> Iterator[Fault]:
    """Read the checkpoint."""
    path = directory / checkpoint_file.NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as e:
        raise StoreError(f"{path}: {e.strerror}") from e
    if checkpoint_file.decode(content, home) is None:
        yield Fault(str(path), 0, "the checkpoint is damaged")

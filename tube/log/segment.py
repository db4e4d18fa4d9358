"""One segment file and its index.

A segment grows at ``size`` by one writer; readers are told how far they may look.  Its file is opened on
demand and let go under the bound of ``OpenFiles``; whoever uses it holds a reference meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tube.errors import StoreError
from tube.limits import BATCH_BYTES_MAX
from tube.log import index as index_format
from tube.log.block import CHUNK_BYTES, Damage, Header, Placed, decode_header, walk
from tube.log.block import HEADER_BYTES as BLOCK_HEADER_BYTES
from tube.log.files import FileSystem, OpenFile, OpenFiles, create_file, write_all
from tube.log.index import ENTRY_BYTES, HEADER_BYTES, NO_TIME, Entry, Index

_NAME: Final = re.compile(r"(\d{20})\.seg")


def segment_name(base_offset: int) -> str:
    """Return the file name of the segment that begins at ``base_offset``."""
    return f"{base_offset:020d}.seg"


def base_offset_of(name: str) -> int | None:
    """Return the base offset that a segment's file name says, or None for another file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class Place:
    """What all segments of one data directory share."""

    __slots__ = ("disk", "files", "home", "interval_bytes")

    def __init__(
        self, disk: FileSystem, files: OpenFiles, *, home: int, interval_bytes: int
    ) -> None:
        self.disk = disk
        self.files = files
        self.home = home
        self.interval_bytes = interval_bytes


class Segment:
    """The blocks from ``base_offset`` on, in one file.

    Callers: the disk thread writes, seals and drops; any thread reads; ``save`` runs in one
    thread at a time.
    """

    __slots__ = (
        "_file",
        "_index",
        "_place",
        "_saved",
        "base_offset",
        "dropped",
        "end_offset",
        "first_append_ms",
        "hint",
        "max_append_ms",
        "path",
        "sealed",
        "size",
        "used",
    )

    def __init__(self, place: Place, directory: Path, base_offset: int, size: int) -> None:
        self._place = place
        self._file: OpenFile | None = None
        self._index: Index | None = None
        self._saved = 0
        self.base_offset = base_offset
        self.dropped = False
        self.end_offset = -1  # of a sealed segment: where the next one begins
        self.first_append_ms: int | None = None
        self.hint = Entry(-1, 0, NO_TIME)  # where the last read ended: the next often begins there
        self.max_append_ms = NO_TIME
        self.path = os.path.join(directory, segment_name(base_offset))
        self.sealed = False
        self.size = size
        self.used = True

    @classmethod
    def create(cls, place: Place, directory: Path, base_offset: int) -> Segment:
        """Create the file, durably.  One of that name holds nothing that was ever acknowledged."""
        segment = cls(place, directory, base_offset, 0)
        create_file(place.disk, Path(segment.path))
        segment._index = Index(base_offset, place.interval_bytes)
        return segment

    # Files

    def file(self) -> OpenFile:
        """Return the open file.  Raises FileNotFoundError when the segment was dropped."""
        self.used = True
        file = self._file
        return file if file is not None else self._open()

    def _open(self) -> OpenFile:
        files = self._place.files
        with files.lock:
            file = self._file
            if file is None:
                try:
                    file = OpenFile(self._place.disk, self.path, os.O_RDWR)
                except OSError as e:
                    if e.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                        raise
                    file = OpenFile(self._place.disk, self.path, os.O_RDONLY)
                self._file = file
                files.opened(self)
        return file

    def let_go(self) -> None:
        """Forget the open file, and the index if it can be read again."""
        self._file = None
        index = self._index
        if self.sealed and index is not None and self._saved == len(index):
            self._index = None

    # Writing

    def write(self, pieces: list[bytes | memoryview]) -> None:
        """Append bytes; ``size`` is left to the caller until the window is kept."""
        file = self.file()
        write_all(self._place.disk, file.fd, pieces, self.size)

    def cut(self, size: int) -> None:
        """Cut the file back to ``size`` bytes."""
        file = self.file()
        self._place.disk.ftruncate(file.fd, size)
        self.size = size
        if self._index is not None:
            self._index.cut(size)
            self._saved = min(self._saved, len(self._index))

    def note(self, offset: int, position: int, append_time_ms: int) -> None:
        """Take a kept block into the index and the times."""
        if self.first_append_ms is None:
            self.first_append_ms = append_time_ms
        self.index().note(offset, position, self.max_append_ms)
        self.max_append_ms = max(self.max_append_ms, append_time_ms)

    def cut_index(self) -> None:
        """Begin the index anew, for a scan of the whole segment."""
        self._index = Index(self.base_offset, self._place.interval_bytes)
        self._saved = 0
        self.max_append_ms = NO_TIME
        self.first_append_ms = None

    def seal(self, next_offset: int) -> None:
        """Take no further blocks: the index gets its last entry."""
        if self.size and self.index().last.position < self.size:
            self.index().add(next_offset, self.size, self.max_append_ms)
        self.end_offset = next_offset
        self.sealed = True

    # Reading

    def read_bytes(self, position: int, length: int) -> bytes:
        """Read up to ``length`` bytes.

        Raises:
            StoreError: the disk cannot read them.
            FileNotFoundError: the segment was dropped.
        """
        try:
            file = self.file()
            return self._place.disk.pread(file.fd, length, position)
        except FileNotFoundError:
            raise
        except OSError as e:
            raise StoreError(f"{self.path} at {position}: {e.strerror}") from e

    def walk(
        self,
        start: Entry,
        end: int,
        *,
        skip_to: int = 0,
        payloads: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[Placed | Damage]:
        """Yield blocks and damage from ``start`` to position ``end``."""
        return walk(
            self.read_bytes,
            start.position,
            end,
            home=self._place.home,
            offset=start.offset,
            skip_to=skip_to,
            payloads=payloads,
            chunk_bytes=chunk_bytes,
        )

    def header_at(self, position: int) -> Header | None:
        """Return the block header at ``position``, if there is a good one."""
        head = memoryview(self.read_bytes(position, BLOCK_HEADER_BYTES))
        return decode_header(head, 0, self._place.home)

    def begin_of(self, entry: Entry) -> Entry:
        """Return ``entry`` if the segment bears it out, else a safe place to begin.

        An entry that points elsewhere than to its block is wrong or its block is damaged; both ways
        the index is built again from the segment and asked again.
        """
        if entry.position == 0 or (self.sealed and entry.position == self.size):
            return entry
        header = self.header_at(entry.position)
        if header is not None and header.base_offset == entry.offset:
            return entry
        return Entry(self.base_offset, 0, NO_TIME)

    def find_offset(self, offset: int) -> Entry:
        """Return where a search for ``offset`` begins."""
        entry = self.index().by_offset(offset)
        found = self.begin_of(entry)
        if found is entry:
            return entry
        self._rebuild()
        return self.index().by_offset(offset)

    def find_time(self, time_ms: int) -> Entry:
        """Return where a search for the first block appended at ``time_ms`` or later begins."""
        entry = self.index().by_time(time_ms)
        found = self.begin_of(entry)
        if found is entry:
            return entry
        self._rebuild()
        return self.index().by_time(time_ms)

    def last_append_ms(self) -> int:
        """Return the latest append time in the segment, ``NO_TIME`` for an empty one."""
        if self.sealed and self.size and self.max_append_ms == NO_TIME:
            self.max_append_ms = self.index().last.max_time_ms
        return self.max_append_ms

    # Index

    def index(self) -> Index:
        """Return the index, read from its file or built from the segment when it is not in memory."""
        index = self._index
        if index is None:
            index = self._load()
            if index is None or (self.sealed and index.last.position != self.size):
                index = self.rebuilt(self.size)
                self._saved = 0
            self._index = index
        return index

    def _load(self) -> Index | None:
        """Return what the index file says, None when it says nothing that can be true."""
        disk = self._place.disk
        try:
            file = OpenFile(disk, self.index_path, os.O_RDONLY)
            content = disk.pread(file.fd, os.fstat(file.fd).st_size, 0)
        except OSError:
            return None
        index = index_format.decode(
            content,
            base_offset=self.base_offset,
            home=self._place.home,
            interval_bytes=self._place.interval_bytes,
        )
        if index is not None:
            self._saved = len(index)
        return index

    def load_until(self, position: int) -> bool:
        """Take the index file's entries before ``position``; False if they do not suffice.

        Called at start for the segment that is scanned from ``position`` on; what lies before it is
        synced, so only the headers behind the last entry are read.
        """
        index = self._load()
        if index is None:
            index = Index(self.base_offset, self._place.interval_bytes)
        index.cut(position)
        self._index = index
        self._saved = len(index)
        self.max_append_ms = index.last.max_time_ms
        # Entries may be as far apart as the longest block; more is a file that lost its end.
        if position - index.last.position > 2 * BATCH_BYTES_MAX:
            return False
        last = index.last
        if self.begin_of(last) is not last:
            return False
        for found in self.walk(last, position, payloads=False):
            if isinstance(found, Placed):
                header = found.header
                self.note(header.base_offset, found.position, header.append_time_ms)
        first = self.header_at(0) if position else None
        self.first_append_ms = first.append_time_ms if first else None
        return True

    def _rebuild(self) -> None:
        """Replace an index that the segment does not bear out."""
        index = self.rebuilt(self.size)
        self._saved = 0
        self._index = index

    def rebuilt(self, end: int) -> Index:
        """Return an index of the file up to ``end``, from its blocks."""
        index = Index(self.base_offset, self._place.interval_bytes)
        latest = NO_TIME
        offset = self.base_offset
        for found in self.walk(Entry(offset, 0, NO_TIME), end, payloads=False):
            if isinstance(found, Damage):
                offset = found.next_offset or offset
                continue
            header = found.header
            index.note(header.base_offset, found.position, latest)
            latest = max(latest, header.append_time_ms)
            offset = header.base_offset + header.span
        if self.sealed and end:
            index.add(self.end_offset, end, latest)
        return index

    @property
    def index_path(self) -> str:
        """The path of the index file."""
        return self.path[:-4] + ".idx"

    def save(self, entries: int) -> None:
        """Sync the segment, and write and sync the index's first ``entries`` entries."""
        disk = self._place.disk
        try:
            file = self.file()
        except FileNotFoundError:
            return  # dropped meanwhile
        disk.fdatasync(file.fd)
        index = self._index
        if index is None or self.dropped:
            return
        entries = min(entries, len(index))  # it may have been built again meanwhile
        if self._saved >= entries:
            return
        # The index is a hint: when it cannot be written, the next start scans more.
        with suppress(OSError):
            out = OpenFile(disk, self.index_path, os.O_RDWR | os.O_CREAT)
            first = self._saved
            content = index.encode_entries(first, entries)
            if first == 0:
                content = index.encode_header(self._place.home) + content
                disk.ftruncate(out.fd, 0)
            at = 0 if first == 0 else HEADER_BYTES + first * ENTRY_BYTES
            write_all(disk, out.fd, [content], at)
            disk.ftruncate(out.fd, at + len(content))
            disk.fdatasync(out.fd)
            self._saved = entries

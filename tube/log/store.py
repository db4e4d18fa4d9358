"""All partitions under one directory, and the journal that makes them durable.

Threads: ``create``, ``delete``, ``commit``, ``begin_checkpoint``, ``retain`` and ``close`` come from one
disk thread; ``read``, ``offset_at``, ``bounds``, ``partitions`` and ``usage`` from any;
``finish_checkpoint`` from one other.  Readers take no lock (see ``tube.log.partition``).

The directory::

    identity  lock  reserve  checkpoint  journal/<20 digits>.jnl
    topics/<topic id>/<partition id>/<20-digit base offset>.seg  and  .idx
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tube.errors import BadRequestError, DiskFullError, NotFoundError, ReadOnlyError, StoreError
from tube.log import checkpoint as checkpoint_file
from tube.log.checkpoint import Checkpoint, Synced, Unsynced
from tube.log.directory import DELETED, JOURNAL, TOPICS, Reserve, claim, take_lock
from tube.log.files import (
    FULL,
    OpenFile,
    OpenFiles,
    make_directory,
    open_files_limit,
    remove_tree,
    replace_file,
    sync_directory,
)
from tube.log.journal import Journal, journal_name
from tube.log.partition import PartitionLog
from tube.log.recovery import load_checkpoint, read_journals, restore
from tube.log.retention import Retention
from tube.log.segment import Place, Segment
from tube.log.values import (
    Append,
    Appended,
    Bounds,
    Dropped,
    Gap,
    LogKey,
    LogOptions,
    ReadResult,
    Recovery,
    Usage,
)
from tube.log.window import Outcome, Window, check_notes, store_error

__all__ = [  # this module is the room's door: what it takes and gives comes with it
    "Append",
    "Appended",
    "Bounds",
    "Checkpoint",
    "Dropped",
    "Gap",
    "LogKey",
    "LogOptions",
    "LogStore",
    "Outcome",
    "ReadResult",
    "Recovery",
    "Retention",
    "Usage",
]


class LogStore:
    """The log of one broker.  ``recovery`` tells what opening it found and did."""

    def __init__(self, root: Path, lock: OpenFile, home: int, options: LogOptions) -> None:
        """Use ``open``."""
        disk = options.disk
        self.recovery = Recovery()
        self._root = root
        self._lock: OpenFile | None = lock
        self._options = options
        self._disk = disk
        limit = options.open_files_max or open_files_limit()
        files = OpenFiles(limit)
        self._place = Place(disk, files, home=home, interval_bytes=options.index_interval_bytes)
        self._reserve = Reserve(disk, root, options.reserve_bytes)
        self._read_only: str | None = None
        self._dirty: dict[Segment, None] = {}
        self._unfinished: dict[Segment, None] = {}
        self._logs: dict[tuple[int, int], PartitionLog] = {}
        try:
            self._recover()
        except BaseException:
            files.let_all_go()  # else they stay open, and their room taken, until the next collection
            raise

    @classmethod
    def open(cls, directory: Path, *, broker_id: int, options: LogOptions, now_ms: int) -> LogStore:
        """Lock the directory, make it the broker's if it is new, and bring its log up.

        Args:
            now_ms: unused by format 1; a later format may date its recovery.

        Raises:
            StoreInUseError: another process, another broker or a newer format has the directory.
            DiskFullError: not even the reserve has room for the start.
            StoreError: the directory cannot be used.
        """
        del now_ms
        disk = options.disk
        root = Path(directory)
        reserve = Reserve(disk, root, options.reserve_bytes)
        while True:
            lock = None
            try:
                make_directory(disk, root)
                lock = take_lock(disk, root)
                home = claim(disk, root, broker_id)
                store = cls(root, lock, home, options)
            except BaseException as e:
                if lock is not None:
                    lock.close()  # a traceback may keep the file for long
                if not isinstance(e, OSError):
                    raise
                if e.errno in FULL and reserve.give_up():
                    continue
                raise store_error(e, str(root)) from e
            if not reserve.is_there and not store._reserve.restore():
                store.recovery.warnings.append(
                    f"{root}: the disk is full; sends are refused until"
                    f" {2 * options.reserve_bytes} bytes are free"
                )
            return store

    def _recover(self) -> None:
        """Restore partitions and notes, and begin a new journal."""
        root, disk, recovery = self._root, self._disk, self.recovery
        home = self._place.home
        saved = load_checkpoint(root, home, recovery)
        replay = read_journals(disk, root, home, saved.journal, recovery)
        restored = restore(self._place, root, saved, replay, recovery)
        self._logs = {(k.topic_id, k.partition_id): v for k, v in restored.logs.items()}
        self._dirty = dict.fromkeys(restored.unsynced)
        self._old_journals = replay.sizes
        self._noted = replay.noted
        number = max([saved.journal, *replay.sizes], default=0) + 1
        self._journal = Journal(disk, root / JOURNAL, home, number)

    # Partitions

    def create(self, topic_id: int, partition_id: int) -> None:
        """Begin a partition, durably; an existing one is left as it is.

        Raises:
            BadRequestError: a number is out of range.
            DiskFullError, ReadOnlyError, StoreError: it could not be created.
        """
        key = (topic_id, partition_id)
        if key in self._logs:
            return
        if not 0 <= topic_id < 2**63 or not 0 <= partition_id < 2**32:
            raise BadRequestError(f"partition {topic_id}/{partition_id} is out of range")
        self._refuse_if_read_only()
        self._reserve.require()
        # First the journal: what it says of an earlier partition of that name is void from here on.
        self._write_journal([self._journal.create(topic_id, partition_id)])
        directory = self._root / TOPICS / str(topic_id) / str(partition_id)
        try:
            make_directory(self._disk, directory)
            log = PartitionLog.create(self._place, LogKey(topic_id, partition_id), directory)
        except OSError as e:
            raise store_error(e, str(directory)) from e
        self._logs[key] = log

    def delete(self, topic_id: int) -> None:
        """Delete all partitions of a topic.  After a crash it is deleted whole or not at all."""
        directory = self._root / TOPICS / str(topic_id)
        if not directory.exists():
            return
        topics = directory.parent
        gone = topics / f"{DELETED}{self._journal.number}-{self._journal.size}-{topic_id}"
        try:
            self._disk.rename(str(directory), str(gone))
            for key in [key for key in self._logs if key[0] == topic_id]:
                self._logs.pop(key).drop()
            sync_directory(self._disk, topics)
            remove_tree(self._disk, gone)
        except OSError as e:
            raise store_error(e, str(directory)) from e

    def partitions(self) -> list[LogKey]:
        """Return all partitions."""
        return sorted(log.key for log in list(self._logs.values()))

    # Appending

    def commit(self, appends: Sequence[Append], notes: Sequence[bytes] = ()) -> list[Outcome]:
        """Append a window of messages and keep notes; when it returns, they are kept as promised.

        Durable appends and notes are on the disk, the others in the page cache.

        Returns:
            For each append where it went, or the error that refused it alone: BadRequestError,
            NotFoundError, ReadOnlyError, StoreError.

        Raises:
            DiskFullError: nothing of the window was kept; it may be tried again.
            ReadOnlyError: a sync failed, now or before; nothing more is taken until reopened.
            BadRequestError: a note is too long.
        """
        self._refuse_if_read_only()
        check_notes(notes)
        if appends and not self._reserve.is_there:
            self._reserve.require()
        window = Window(self._journal, self._options, self._dirty)
        window.gather(appends, self._logs)
        try:
            window.write_segments()
        except OSError as e:
            window.cut_back()
            raise store_error(e, str(self._root)) from e
        pieces = window.records(notes)
        if pieces:
            try:
                self._write_journal(pieces)
            except DiskFullError:
                window.cut_back()
                raise
        if notes:
            self._journal.has_notes = True
        window.publish()
        return window.outcomes

    def _write_journal(self, pieces: list[bytes | memoryview]) -> None:
        """Write records and sync them.

        Raises:
            DiskFullError: they were taken back.
            ReadOnlyError: what the disk has is unknown.
        """
        journal = self._journal
        try:
            written = journal.write(pieces)
        except OSError as e:
            try:
                journal.cut()
            except OSError:
                raise self._lost(e, journal.path) from e
            if e.errno in FULL:
                raise store_error(e, str(journal.path)) from e
            raise self._lost(e, journal.path) from e
        try:
            journal.sync(written)
        except OSError as e:
            raise self._lost(e, journal.path) from e

    def _lost(self, error: OSError, path: Path | str) -> ReadOnlyError:
        """Take nothing more, since ``path`` may not hold what it should."""
        self._read_only = f"{path}: {error.strerror}; nothing is taken until the broker restarts"
        return ReadOnlyError(self._read_only, hint="check the disk, then restart the broker")

    def _refuse_if_read_only(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self._root} is closed")
        if self._read_only is not None:
            raise ReadOnlyError(self._read_only)

    # Reading

    def _log(self, topic_id: int, partition_id: int) -> PartitionLog:
        log = self._logs.get((topic_id, partition_id))
        if log is None:
            raise NotFoundError(f"no partition {topic_id}/{partition_id} here")
        return log

    def bounds(self, topic_id: int, partition_id: int) -> Bounds:
        """Return what a partition holds.  Raises NotFoundError."""
        return self._log(topic_id, partition_id).bounds(self._read_only is not None)

    def read(
        self,
        topic_id: int,
        partition_id: int,
        offset: int,
        bytes_max: int,
        end_offset: int | None = None,
    ) -> ReadResult:
        """Read whole blocks, the first of which contains ``offset`` or is the next one behind it.

        At least one block if there is any, else as many as fit into ``bytes_max`` payload bytes;
        none that begins at ``end_offset`` or later.  Payloads are views of one buffer.

        Damaged blocks are passed by, each with a ``Gap``; go on at ``next_offset`` of the result.

        Raises:
            OffsetOutOfRangeError: the offset is before the first or behind the next one.
            NotFoundError: there is no such partition.
            StoreError: the disk cannot read.
        """
        return self._log(topic_id, partition_id).read(offset, bytes_max, end_offset)

    def offset_at(self, topic_id: int, partition_id: int, time_ms: int) -> int:
        """Return the first offset whose block was appended at ``time_ms`` or later, or the next one."""
        return self._log(topic_id, partition_id).offset_at(time_ms)

    def usage(self) -> Usage:
        """Return what the directory takes."""
        views = [log.view for log in list(self._logs.values())]
        journals = self._journal.size + sum(list(self._old_journals.values()))
        size = sum(view.bytes for view in views)
        segments = sum(len(view.segments) for view in views)
        free = self._disk.free_bytes(self._root)
        return Usage(size + journals, free, segments, journals, self._read_only)

    # Upkeep

    def begin_checkpoint(self) -> Checkpoint:
        """Begin a new journal and note what has to be synced so that the older ones may go.

        Save what the notes so far amount to, durably; then call ``finish_checkpoint``.

        Raises:
            DiskFullError, ReadOnlyError, StoreError: the old journal goes on.
        """
        self._refuse_if_read_only()
        old = self._journal
        try:
            self._journal = Journal(self._disk, self._root / JOURNAL, old.home, old.number + 1)
        except OSError as e:
            raise store_error(e, str(self._root / JOURNAL)) from e
        self._old_journals[old.number] = old.size
        if old.has_notes:
            self._noted.add(old.number)
        self._unfinished.update(self._dirty)
        self._dirty = {}
        unsynced = [
            Unsynced(segment, len(segment.index()))
            for segment in self._unfinished
            if not segment.dropped
        ]
        synced = {}
        for log in self._logs.values():
            view = log.view
            synced[log.key] = Synced(view.bases[-1], view.end, view.next_offset)
        return Checkpoint(self._journal.number, unsynced, synced)

    def finish_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Sync what the checkpoint noted, record it, and delete the journals before it.

        Raises:
            ReadOnlyError: a segment could not be synced; the journals are kept for the next start.
            DiskFullError, StoreError: it could not be recorded; the next checkpoint does it.
        """
        self._sync(checkpoint)
        self._record(checkpoint, checkpoint.journal)
        self._noted -= {n for n in self._noted if n < checkpoint.journal}

    def _sync(self, checkpoint: Checkpoint) -> None:
        """Sync segments and indexes."""
        self._refuse_if_read_only()
        for segment, entries in checkpoint.unsynced:
            if segment.dropped:
                continue
            try:
                segment.save(entries)
            except OSError as e:
                raise self._lost(e, segment.path) from e

    def _record(self, checkpoint: Checkpoint, journal: int) -> None:
        """Write the checkpoint file, from which on only journals from ``journal`` on are needed."""
        path = self._root / checkpoint_file.NAME
        content = checkpoint_file.encode(self._place.home, journal, checkpoint.synced)
        try:
            replace_file(self._disk, path, content)
            for number in sorted(n for n in list(self._old_journals) if n < journal):
                self._disk.unlink(str(self._root / JOURNAL / journal_name(number)))
                del self._old_journals[number]
        except OSError as e:
            raise store_error(e, str(path)) from e
        if checkpoint.journal == self._journal.number:
            self._unfinished = {}

    def retain(self, policies: Mapping[int, Retention], now_ms: int) -> list[Dropped]:
        """Drop the segments that their topics' policies let go; topics without one keep all.

        An active segment whose newest block has expired is rolled, so that an idle topic empties too.

        Raises:
            StoreError: files could not be deleted; they are out of use all the same.
        """
        dropped: list[Dropped] = []
        for (topic_id, _), log in list(self._logs.items()):
            policy = policies.get(topic_id)
            if policy is None:
                continue
            try:
                sealed = log.roll_if_expired(policy, now_ms)
                if sealed is not None:
                    self._dirty[sealed] = None
                dropped += log.retain(policy, now_ms)
            except OSError as e:
                raise store_error(e, str(log.directory)) from e
        return dropped

    def close(self) -> None:
        """Sync everything and leave an empty journal.

        Journals with notes that no finished checkpoint covers are kept, for the next start to
        give the notes back.  When the disk fails, all journals are kept.
        """
        if self._lock is None:
            return
        with suppress(StoreError, DiskFullError):
            checkpoint = self.begin_checkpoint()
            self._sync(checkpoint)
            self._record(checkpoint, min([checkpoint.journal, *self._noted]))
        self._lock.close()
        self._lock = None
        self._journal.file.close()
        for log in self._logs.values():
            log.drop()
        self._logs = {}
        self._place.files.let_all_go()

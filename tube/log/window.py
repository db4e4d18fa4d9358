"""One commit window: many appends and notes, one write per partition, one sync of the journal.

Nothing is published before everything is kept; whatever fails before is cut back.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tube.errors import (
    BadRequestError,
    DiskFullError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    TubeError,
)
from tube.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX
from tube.log.block import HEADER_BYTES, Block, encode
from tube.log.files import FULL
from tube.log.journal import NOTE_BYTES_MAX, Journal
from tube.log.partition import PartitionLog
from tube.log.segment import Segment
from tube.log.values import Append, Appended, LogOptions

Outcome = Appended | TubeError


class Encoded(NamedTuple):
    """One append of a batch; ``number`` says which of the window's it is."""

    number: int
    head: bytes
    block: Block
    durable: bool


class Batch:
    """What a window appends to one partition."""

    __slots__ = ("encoded", "log", "next_offset", "pieces", "segment")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.next_offset = log.view.next_offset
        self.segment: Segment | None = None
        self.encoded: list[Encoded] = []
        self.pieces: list[bytes | memoryview] = []


class Window:
    """One call of ``LogStore.commit``.

    Args:
        journal: the newest journal.
        dirty: takes the segments that were written to.
    """

    __slots__ = ("_batches", "_dirty", "_journal", "_options", "outcomes")

    def __init__(self, journal: Journal, options: LogOptions, dirty: dict[Segment, None]) -> None:
        self._journal = journal
        self._options = options
        self._dirty = dirty
        self._batches: dict[PartitionLog, Batch] = {}
        self.outcomes: list[Outcome] = []

    def gather(
        self, appends: Sequence[Append], logs: Mapping[tuple[int, int], PartitionLog]
    ) -> None:
        """Number the messages and encode their blocks; what cannot be appended gets its error."""
        batches = self._batches
        for number, append in enumerate(appends):
            log = logs.get((append.topic_id, append.partition_id))
            refusal = _refusal(append, log)
            if log is None or refusal is not None:
                self.outcomes.append(refusal or StoreError("no partition"))
                continue
            batch = batches.get(log)
            if batch is None:
                batch = batches[log] = Batch(log)
            payload = append.payload
            if not isinstance(payload, (bytes, memoryview)):
                payload = b"".join(payload)
            if not 0 < len(payload) <= BATCH_BYTES_MAX:
                text = f"payload of {len(payload)} bytes is not in 1..{BATCH_BYTES_MAX}"
                self.outcomes.append(BadRequestError(text))
                continue
            base = batch.next_offset
            block = Block(
                base,
                append.span or append.count,
                append.count,
                payload,
                append.append_time_ms,
                append.max_time_ms,
                append.filter_bits,
                append.codec,
                append.producer_id,
                append.producer_epoch,
                append.sequence & 0xFFFFFFFF,
            )
            try:
                head = encode(block, self._journal.home)
            except struct.error as e:
                self.outcomes.append(BadRequestError(f"a number is out of range: {e}"))
                continue
            batch.next_offset = block.end_offset
            batch.encoded.append(Encoded(number, head, block, append.durable))
            batch.pieces += (head, payload)
            self.outcomes.append(Appended(base, block))

    def write_segments(self) -> None:
        """Write every batch behind its segment.

        Raises:
            OSError: the disk is full; any other error is its partition's alone.
        """
        options = self._options
        for batch in list(self._batches.values()):
            if not batch.encoded:
                del self._batches[batch.log]
                continue
            now_ms = batch.encoded[0].block.append_time_ms
            try:
                sealed = batch.log.roll_if_due(
                    options.segment_bytes, options.segment_age_ms, now_ms
                )
                if sealed is not None:
                    self._dirty[sealed] = None
                batch.segment = batch.log.active
                batch.segment.write(batch.pieces)
            except OSError as e:
                if e.errno in FULL:
                    raise
                self._fail(batch, e)

    def _fail(self, batch: Batch, error: OSError) -> None:
        """Refuse one partition's appends."""
        del self._batches[batch.log]
        _cut_back(batch)
        text = f"{batch.log.directory}: {error.strerror}"
        for encoded in batch.encoded:
            self.outcomes[encoded.number] = StoreError(text)

    def records(self, notes: Sequence[bytes]) -> list[bytes | memoryview]:
        """Return the journal's records for what must be durable."""
        pieces: list[bytes | memoryview] = []
        journal = self._journal
        for batch in self._batches.values():
            segment = batch.segment
            assert segment is not None
            key = batch.log.key
            position = segment.size
            for _, head, block, durable in batch.encoded:
                length = HEADER_BYTES + len(block.payload)
                if durable:
                    base = segment.base_offset
                    record = journal.append(key.topic_id, key.partition_id, base, position, length)
                    pieces += (record, head, block.payload)
                position += length
        for note in notes:
            pieces += (journal.note(note), note)
        return pieces

    def cut_back(self) -> None:
        """Take everything back that was written to segments."""
        for batch in self._batches.values():
            _cut_back(batch)

    def publish(self) -> None:
        """Let readers see what is kept."""
        for batch in self._batches.values():
            assert batch.segment is not None
            self._dirty[batch.segment] = None
            batch.log.publish([encoded.block for encoded in batch.encoded])


def _cut_back(batch: Batch) -> None:
    """Cut a segment back to what is published; a partition where that fails takes no more."""
    if batch.segment is None:
        return
    try:
        batch.segment.cut(batch.segment.size)
    except OSError as e:
        batch.log.read_only = f"{batch.segment.path} could not be cut back: {e.strerror}"


def _refusal(append: Append, log: PartitionLog | None) -> TubeError | None:
    """Return why the append cannot be taken, or None."""
    if log is None:
        return NotFoundError(f"no partition {append.topic_id}/{append.partition_id} here")
    if log.read_only is not None:
        return ReadOnlyError(log.read_only)
    if not 0 < append.count <= BATCH_COUNT_MAX:
        return BadRequestError(f"message count {append.count} is not in 1..{BATCH_COUNT_MAX}")
    if not 0 <= append.span < 2**32:
        return BadRequestError(f"span {append.span} is not in 0..{2**32 - 1}")
    if not 0 < append.codec < 256:
        return BadRequestError(f"codec {append.codec} is not in 1..255")
    return None


def check_notes(notes: Iterable[bytes]) -> None:
    """Refuse notes that the journal does not take."""
    for note in notes:
        if len(note) > NOTE_BYTES_MAX:
            raise BadRequestError(f"note of {len(note)} bytes is over {NOTE_BYTES_MAX}")


def store_error(error: OSError, what: str) -> TubeError:
    """Return the error of ours for one of the operating system's."""
    if error.errno in FULL:
        return DiskFullError(f"{what}: the disk is full", hint="free some space")
    name = errno.errorcode.get(error.errno or 0, "error")
    return StoreError(f"{what}: {error.strerror} ({name})")

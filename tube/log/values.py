"""What the log takes and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tube.log.block import TUBE, Block
from tube.log.files import FileSystem


@dataclass(frozen=True, slots=True, order=True)
class LogKey:
    """One partition of one topic, by numbers."""

    topic_id: int
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a data directory is kept."""

    segment_bytes: int = 128 * 1024 * 1024
    """A segment of this size takes no further window."""
    segment_age_ms: int = 24 * 3600 * 1000
    """A segment whose first block is older takes no further window, so that retention can drop it."""
    index_interval_bytes: int = 64 * 1024
    """Distance of index entries."""
    reserve_bytes: int = 4 * 1024 * 1024
    """Room kept aside so that a broker starts on a full disk: a journal, a checkpoint, offsets."""
    open_files_max: int | None = None
    """Most segment files open at a time; None takes half of what the process may open."""
    disk: FileSystem = field(default_factory=FileSystem)
    """The calls to the operating system, and its randomness."""


@dataclass(slots=True)
class Append:
    """One run of messages for one partition.

    ``payload`` is in the wire form of ``codec``, whole or in pieces; ``span`` of 0 means ``count``;
    ``producer_id`` 0 means none.
    """

    topic_id: int
    partition_id: int
    payload: Sequence[bytes] | bytes
    count: int
    durable: bool
    append_time_ms: int
    max_time_ms: int
    span: int = 0
    filter_bits: int = 0
    codec: int = TUBE
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int = 0


@dataclass(slots=True)
class Appended:
    """Where a run was put; ``block`` is for the tail cache."""

    base_offset: int
    block: Block


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: offsets ``first_offset`` to ``next_offset - 1``."""

    first_offset: int
    next_offset: int
    bytes: int
    read_only: bool
    last_append_ms: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets ``first_offset`` to ``next_offset - 1`` cannot be read: damage in ``file``."""

    file: str
    position: int
    length: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class ReadResult:
    """Whole blocks in order, the damage met on the way, and the offset to go on from."""

    blocks: list[Block]
    gaps: list[Gap]
    next_offset: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A segment that retention deleted; its offsets ended before ``next_offset``."""

    topic_id: int
    partition_id: int
    base_offset: int
    next_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a data directory takes and what its disk has left; ``read_only`` says why, or is None."""

    bytes: int
    free_bytes: int
    segments: int
    journal_bytes: int
    read_only: str | None


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Damage that was found at start, with good blocks behind it; it stays in place."""

    file: str
    position: int
    length: int


@dataclass(slots=True)
class Recovery:
    """What ``LogStore.open`` found and did."""

    replayed: int = 0
    """Appends of the journal that were written to their segments again."""
    repaired: int = 0
    """Those of them that the segment had lost or held damaged."""
    cut_bytes: int = 0
    """Torn tails that were cut from segments and journals."""
    scanned_bytes: int = 0
    quarantined: list[Quarantine] = field(default_factory=list)
    notes: list[bytes] = field(default_factory=list)
    """The notes since the last checkpoint, oldest first."""
    warnings: list[str] = field(default_factory=list)
    """For the caller to log, one line each."""

"""Group commit: many callers, one write and one sync.

Everything that arrives while one window is on its way to the disk waits for the next, so the price of a sync is
shared by all who wait for it.  Topics with ``ack = "written"`` have windows of their own, which no sync delays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tube.errors import ReceiveOverflowError, StoppingError, TubeError
from tube.limits import BATCH_COUNT_MAX
from tube.log.store import LogStore
from tube.log.values import Append, Appended
from tube.net.workers import Workers

log = Logger(namespace="tube.broker.appender")

WINDOW_BYTES_MAX = 32 * 1024 * 1024
"""Most payload bytes of one commit window; the rest waits for the next."""

QUEUE_BYTES_MAX = 256 * 1024 * 1024
"""Most payload bytes that wait; beyond, senders get 419 and try again."""

NOTES_MAX = 100_000
"""Most notes that wait: some 10 MB.  Beyond, whoever waits for one gets 419, and unconfirmed ones are dropped."""

MERGED_BYTES_MAX = 1024 * 1024
"""Batches of one partition are put into one block up to this size."""


@dataclass(slots=True)
class Batch:
    """Messages of one sender for one partition, and whom to tell.

    ``done(batch, result)`` is called on the reactor thread: with the offset of the first message and the append
    time, or with the error.  ``payload`` is a list of runs (see ``wire.run``).
    """

    topic_id: int
    partition_id: int
    durable: bool
    payload: list[bytes]
    payload_bytes: int
    count: int
    filter_bits: int
    done: Callable[[Batch, Result], None]
    max_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int = 0
    context: object = None


@dataclass(slots=True)
class Result:
    """How a batch ended: ``error`` is None when it is kept as promised."""

    base_offset: int
    append_time_ms: int
    error: TubeError | None = None


@dataclass(slots=True)
class _Queue:
    """What waits for the next window of one kind."""

    batches: list[Batch] = field(default_factory=list)
    payload_bytes: int = 0
    notes: list[bytes] = field(default_factory=list)
    note_waiters: list[Deferred[None]] = field(default_factory=list)
    busy: bool = False


class Appender:
    """Collects batches and notes into commit windows for the log.

    ``appended(topic_id, partition_id, appended)`` is called for every block that was kept, before its senders
    hear of it: the tail cache and waiting pulls live there.

    Callers: broker.service and the gateways, on the reactor thread.
    """

    def __init__(
        self,
        store: LogStore,
        disk: Workers,
        wall_ms: Callable[[], int],
        appended: Callable[[int, int, Appended], None],
    ) -> None:
        self._store = store
        self._disk = disk
        self._wall_ms = wall_ms
        self._appended = appended
        self._durable = _Queue()
        self._written = _Queue()
        self._idle: list[Deferred[None]] = []
        self._stopping = False
        self.committed_messages = 0
        self.committed_bytes = 0
        self.windows = 0

    def append(self, batch: Batch) -> None:
        """Queue a batch; its ``done`` is called exactly once, possibly before this returns (on refusal)."""
        queue = self._durable if batch.durable else self._written
        if self._stopping:
            batch.done(batch, Result(-1, 0, StoppingError("the broker is stopping")))
        elif queue.payload_bytes + batch.payload_bytes > QUEUE_BYTES_MAX:
            error = ReceiveOverflowError(f"{queue.payload_bytes} bytes wait for the disk")
            batch.done(batch, Result(-1, 0, error))
        else:
            queue.batches.append(batch)
            queue.payload_bytes += batch.payload_bytes
            if not queue.busy:
                self._begin(queue)

    def note(self, note: bytes) -> Deferred[None]:
        """Write a note to the journal; fires when it is durable."""
        queue = self._durable
        waiter: Deferred[None] = Deferred()
        if len(queue.notes) >= NOTES_MAX:
            waiter.errback(Failure(ReceiveOverflowError(f"{NOTES_MAX} notes wait for the disk")))
            return waiter
        queue.notes.append(note)
        queue.note_waiters.append(waiter)
        if not queue.busy:
            self._begin(queue)
        return waiter

    def note_soon(self, note: bytes) -> None:
        """Write a note with the next window that comes anyway, or at once; nobody waits for it.

        It may be lost: memory knows more, and the next snapshot has it.
        """
        if len(self._durable.notes) >= NOTES_MAX:
            return
        self._durable.notes.append(note)
        if not self._durable.busy:
            self._begin(self._durable)

    def stop(self) -> None:
        """Refuse new batches; what is queued is still committed."""
        self._stopping = True

    def when_idle(self) -> Deferred[None]:
        """Fires when nothing is queued or on its way."""
        waiter: Deferred[None] = Deferred()
        self._idle.append(waiter)
        self._tell_idle()
        return waiter

    def _begin(self, queue: _Queue) -> None:
        queue.busy = True
        batches = _take(queue)
        notes, queue.notes = queue.notes, []
        waiters, queue.note_waiters = queue.note_waiters, []
        now_ms = self._wall_ms()
        groups = _merge(batches)
        appends = [_append(group, now_ms) for group in groups]
        outcome = self._disk.call(self._store.commit, appends, notes)
        outcome.addBoth(self._ended, queue, groups, waiters, now_ms)

    def _ended(
        self,
        outcome: Sequence[Appended | TubeError] | Failure,
        queue: _Queue,
        groups: list[list[Batch]],
        waiters: list[Deferred[None]],
        now_ms: int,
    ) -> None:
        self.windows += 1
        if isinstance(outcome, Failure):
            error = _known(outcome)
            results: Sequence[Appended | TubeError] = [error] * len(groups)
            for waiter in waiters:
                waiter.errback(Failure(error))
        else:
            results = outcome
            for waiter in waiters:
                waiter.callback(None)
        if queue.batches or queue.notes:
            self._begin(queue)  # the disk works while we answer
        else:
            queue.busy = False
        for group, result in zip(groups, results, strict=True):
            self._tell(group, result, now_ms)
        self._tell_idle()

    def _tell(self, group: list[Batch], result: Appended | TubeError, now_ms: int) -> None:
        if isinstance(result, TubeError):
            for batch in group:
                batch.done(batch, Result(-1, now_ms, result))
            return
        first = group[0]
        self._appended(first.topic_id, first.partition_id, result)
        offset = result.base_offset
        for batch in group:
            self.committed_messages += batch.count
            self.committed_bytes += batch.payload_bytes
            batch.done(batch, Result(offset, now_ms))
            offset += batch.count

    def _tell_idle(self) -> None:
        if self._durable.busy or self._written.busy:
            return
        idle, self._idle = self._idle, []
        for waiter in idle:
            waiter.callback(None)


def _take(queue: _Queue) -> list[Batch]:
    """Remove the oldest batches up to the size of a window (at least one)."""
    if queue.payload_bytes <= WINDOW_BYTES_MAX:
        batches, queue.batches, queue.payload_bytes = queue.batches, [], 0
        return batches
    total = taken = 0
    for batch in queue.batches:
        if taken and total + batch.payload_bytes > WINDOW_BYTES_MAX:
            break
        total += batch.payload_bytes
        taken += 1
    batches, queue.batches = queue.batches[:taken], queue.batches[taken:]
    queue.payload_bytes -= total
    return batches


def _merge(batches: list[Batch]) -> list[list[Batch]]:
    """Put batches of one partition together into blocks; order within a partition stays."""
    groups: list[list[Batch]] = []
    open_groups: dict[tuple[int, int], tuple[list[Batch], int, int]] = {}
    for batch in batches:
        key = (batch.topic_id, batch.partition_id)
        if batch.producer_id:  # its block carries its sequence, so it stands alone
            open_groups.pop(key, None)
            groups.append([batch])
            continue
        found = open_groups.get(key)
        if (
            found is not None
            and found[1] + batch.payload_bytes <= MERGED_BYTES_MAX
            and found[2] + batch.count <= BATCH_COUNT_MAX
        ):
            found[0].append(batch)
            open_groups[key] = (found[0], found[1] + batch.payload_bytes, found[2] + batch.count)
        else:
            group = [batch]
            groups.append(group)
            open_groups[key] = (group, batch.payload_bytes, batch.count)
    return groups


def _append(group: list[Batch], now_ms: int) -> Append:
    first = group[0]
    payload = (
        first.payload if len(group) == 1 else [part for batch in group for part in batch.payload]
    )
    bits = count = max_time_ms = 0
    for batch in group:
        bits |= batch.filter_bits
        count += batch.count
        max_time_ms = max(max_time_ms, batch.max_time_ms)
    return Append(
        topic_id=first.topic_id,
        partition_id=first.partition_id,
        payload=payload,
        count=count,
        span=count,
        durable=first.durable,
        append_time_ms=now_ms,
        max_time_ms=max_time_ms or now_ms,
        filter_bits=bits,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        sequence=first.sequence,
    )


def _known(failure: Failure) -> TubeError:
    """The deliberate error in ``failure``; anything else is a bug, logged and answered as 500."""
    if isinstance(failure.value, TubeError):
        return failure.value
    log.failure("a commit window failed", failure=failure)
    return TubeError(f"the log failed: {failure.value}")

"""The verbs of the broker, protocol-neutral: values in, values out, errors raised.

After every ``await`` the hold is checked again: ownership may have moved while the disk was busy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred

from tube.broker.appender import Appender, Batch, Result
from tube.broker.flow import FlowControl
from tube.broker.holders import Claim, Hold, Holders
from tube.broker.ledger import Ledger
from tube.broker.offsets import Offsets
from tube.broker.pull import Cut, cut
from tube.broker.reader import Reader
from tube.broker.topics import Topics, TopicSettings
from tube.errors import (
    BadRequestError,
    DuplicateHolderError,
    NotFoundError,
    NotOwnerError,
    NotRegisteredError,
    OffsetOutOfRangeError,
    SpeedLimitError,
    TubeError,
)
from tube.limits import WAIT_MS_MAX
from tube.log.store import LogStore
from tube.log.values import Bounds, ReadResult
from tube.net.workers import Workers
from tube.values import ClientId, GroupName

Room = Callable[[int], Awaitable[None]]
"""``await room(byte_count)`` before messages are read: the asker may not have read its answers yet."""

START_SAVED: Final = 0
START_LATEST_ONCE: Final = 1
START_LATEST: Final = 2
"""readStatus of a partition registration (spec section 4.3)."""

SCAN_BYTES_MAX: Final = 8 * 1024 * 1024
"""How much a filtered pull looks through before it answers with what it has, even if that is nothing."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a consumer's reading begins, and where the partition ends."""

    offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer of a pull: ``offset`` is where the batch starts."""

    cut: Cut
    offset: int
    first_offset: int
    end_offset: int
    lag_bytes: int
    require_slow: bool = False


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What a partition holds, and what a group did with it."""

    topic: str
    partition_id: int
    bounds: Bounds
    committed: int | None
    holder: str | None


class BrokerService:
    """What a broker does for clients.

    Callers: the gateways and broker.orders, on the reactor thread.
    ``now_s`` is monotonic, ``wall_ms`` the wall clock.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        holders: Holders,
        offsets: Offsets,
        flow: FlowControl,
        store: LogStore,
        appender: Appender,
        reader: Reader,
        reads: Workers,
        now_s: Callable[[], float],
        wall_ms: Callable[[], int],
        pull_bytes: int,
    ) -> None:
        self.topics = topics
        self.holders = holders
        self.offsets = offsets
        self.flow = flow
        self.appender = appender
        self.reader = reader
        self.ledger = Ledger(offsets, appender, wall_ms)
        self._store = store
        self._reads = reads
        self._now_s = now_s
        self._wall_ms = wall_ms
        self._pull_bytes = pull_bytes
        self.pulled_messages = 0
        self.pulled_bytes = 0
        self.stopping = False

    # producers

    def send(self, batch: Batch) -> None:
        """Append a batch that the gateway checked; its ``done`` tells the outcome."""
        self.appender.append(batch)

    def send_one(self, batch: Batch) -> Deferred[Result]:
        """``send`` with a Deferred of the result; raises the error through it."""
        answer: Deferred[Result] = Deferred()

        def done(_batch: Batch, result: Result) -> None:
            if result.error is None:
                answer.callback(result)
            else:
                answer.errback(result.error)

        batch.done = done
        self.appender.append(batch)
        return answer

    # consumers

    async def register(
        self,
        claim: Claim,
        client: ClientId,
        *,
        start: int,
        wanted: int | None,
        filters: frozenset[int],
        features: int,
        peer: str,
    ) -> Registered:
        """Give a partition to a consumer and say where it starts (spec section 4.3).

        Args:
            start: START_SAVED, START_LATEST_ONCE or START_LATEST.
            wanted: an offset the client asks for, None for none; moved into what exists.

        Raises:
            ForbiddenError: the topic cannot be read.  PartitionOccupiedError: somebody else holds it.
            BadRequestError: an unknown ``start``.
        """
        if start not in (START_SAVED, START_LATEST_ONCE, START_LATEST):
            raise BadRequestError(f"readStatus {start} is not 0, 1 or 2")
        topic = self.topics.readable(claim.topic, claim.partition_id)
        hold = self.holders.take(claim, client, self._now_s())
        hold.filters, hold.features, hold.peer = filters, features, peer
        bounds = self._bounds(topic, claim.partition_id)
        saved = offset = self.offsets.get(claim, topic.topic_id)
        if offset is None:
            offset = bounds.first_offset if start == START_SAVED else bounds.next_offset
        if start == START_LATEST:
            wanted = bounds.next_offset
        if wanted is not None:
            offset = min(max(wanted, bounds.first_offset), bounds.next_offset)
        if saved is None:
            await self.ledger.commit(claim, topic.topic_id, offset)
        elif offset != saved:
            await self.ledger.reset(claim, topic.topic_id, offset)
        if offset != saved:
            self._same(claim, client, hold)
        return Registered(offset, bounds.next_offset)

    async def unregister(self, claim: Claim, client: ClientId, *, keep: bool) -> None:
        """End a hold; ``keep`` commits what the client was given last.

        Raises:
            NotRegisteredError, DuplicateHolderError: it does not hold the partition.
        """
        hold = self.holders.release(claim, client)
        self.flow.forget(claim)
        topic = self.topics.get(claim.topic)
        if topic is not None:
            self.reader.wake(topic.topic_id, claim.partition_id)
            if keep and hold.pending is not None:
                await self.ledger.commit(claim, topic.topic_id, hold.pending)

    def holds(self, claim: Claim, client: ClientId) -> bool:
        """Whether the client has the partition."""
        hold = self.holders.find(claim)
        return hold is not None and hold.client == client

    def heartbeat(self, claims: Iterable[Claim], client: ClientId) -> list[tuple[Claim, TubeError]]:
        """Renew holds; return those that the client does not have, with the reason."""
        failures: list[tuple[Claim, TubeError]] = []
        now_s = self._now_s()
        for claim in claims:
            try:
                self.holders.touch(claim, client, now_s)
            except (NotRegisteredError, DuplicateHolderError) as error:
                failures.append((claim, error))
        return failures

    async def get(
        self,
        claim: Claim,
        client: ClientId,
        *,
        commit_last: bool,
        manual: bool,
        bypass_flow: bool = False,
        wait_ms: int = 0,
        bytes_max: int = 0,
        room: Room | None = None,
    ) -> Pulled:
        """The next batch of a held partition (spec section 4.5).

        Args:
            commit_last: commit what was given last before reading.
            manual: the client commits by itself: go on after what was given last.
            wait_ms: wait so long for a message when there is none.
            bytes_max: about how many bytes to answer; 0 takes the broker's default.

        Raises:
            NotFoundError: no message (within the wait).  SpeedLimitError: a flow-control rule says wait.
            NotRegisteredError, DuplicateHolderError: the partition is not held by ``client``.
            ForbiddenError: the topic cannot be read.
        """
        topic = self.topics.readable(claim.topic, claim.partition_id)
        hold = self.holders.touch(claim, client, self._now_s())
        hold.turn += 1
        turn = hold.turn
        if commit_last and hold.pending is not None:
            self._commit_soon(claim, topic, hold.pending)
            hold.pending = None
        bytes_max = min(bytes_max, SCAN_BYTES_MAX) if bytes_max > 0 else self._pull_bytes
        until_s = self._now_s() + min(wait_ms, WAIT_MS_MAX) / 1000
        while True:
            bounds = self._bounds(topic, claim.partition_id)
            offset = self._position(claim, topic, hold, bounds, manual=manual)
            lag_bytes = _lag_bytes(bounds, offset)
            if offset < bounds.next_offset:
                if not bypass_flow:
                    self._check_flow(claim, lag_bytes)
                if room is not None:
                    await room(bytes_max)
                    self._same(claim, client, hold, turn)
                    room = None
                    continue  # while it waited, others may have moved the offset
                pulled = await self._pull(claim, topic, hold, offset, bytes_max)
                self._same(claim, client, hold, turn)
                # Who commits by itself must hear how far it was looked through in vain.
                if pulled.count or manual or self._now_s() >= until_s:
                    return self._pulled(claim, hold, pulled, offset, topic)
                self._commit_soon(claim, topic, pulled.next_offset)
                continue
            left_s = until_s - self._now_s()
            if left_s <= 0 or self.stopping:
                raise NotFoundError("no new message")
            await self.reader.wait(topic.topic_id, claim.partition_id, left_s)
            self._same(claim, client, hold, turn)
            topic = self.topics.readable(claim.topic, claim.partition_id)

    async def commit(
        self, claim: Claim, client: ClientId, *, accept: bool, offset: int | None = None
    ) -> Registered:
        """Commit what was given last (or up to ``offset``), or with ``accept=False`` forget that it was given.

        The answer means that the commit is durable.

        Raises:
            NotRegisteredError: nobody holds the partition.  NotOwnerError: somebody else does.
            BadRequestError: ``offset`` is beyond what was given.
        """
        topic = self.topics.readable(claim.topic, claim.partition_id)
        try:
            hold = self.holders.touch(claim, client, self._now_s())
        except DuplicateHolderError as error:
            raise NotOwnerError(str(error)) from error
        bounds = self._bounds(topic, claim.partition_id)
        if accept:
            target = hold.pending if offset is None else offset
            if offset is not None and offset > bounds.next_offset:
                raise BadRequestError(f"offset {offset} is after the end {bounds.next_offset}")
            if target is not None:
                await self.ledger.commit(claim, topic.topic_id, target)
        if offset is None:
            hold.pending = None
        committed = self.offsets.get(claim, topic.topic_id)
        return Registered(
            bounds.first_offset if committed is None else committed, bounds.next_offset
        )

    # anybody with the right to read

    async def fetch(
        self,
        name: str,
        partition_id: int,
        offset: int,
        *,
        bytes_max: int,
        end_offset: int | None,
        wait_ms: int,
        filters: frozenset[int],
        room: Room | None = None,
    ) -> Pulled:
        """Messages from ``offset`` on, without holding the partition.

        Raises:
            OffsetOutOfRangeError: before the first offset or after the end.  ForbiddenError.
        """
        topic = self.topics.readable(name, partition_id)
        bytes_max = min(bytes_max, SCAN_BYTES_MAX) if bytes_max > 0 else self._pull_bytes
        until_s = self._now_s() + min(wait_ms, WAIT_MS_MAX) / 1000
        while True:
            bounds = self._bounds(topic, partition_id)
            if not bounds.first_offset <= offset <= bounds.next_offset:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is not in {bounds.first_offset}..{bounds.next_offset}"
                )
            left_s = until_s - self._now_s()
            if offset < bounds.next_offset or left_s <= 0 or self.stopping:
                break
            await self.reader.wait(topic.topic_id, partition_id, left_s)
            topic = self.topics.readable(name, partition_id)
        if offset == bounds.next_offset:
            answer = Cut(next_offset=offset)
        else:
            if room is not None:
                await room(bytes_max)
            found = await self._read(topic, partition_id, offset, bytes_max, end_offset)
            answer = _cut(found, offset, bytes_max, end_offset, filters)
        self._count(answer)
        return Pulled(
            answer, offset, bounds.first_offset, bounds.next_offset, _lag_bytes(bounds, offset)
        )

    async def offset_at(self, name: str, partition_id: int, time_ms: int) -> int:
        """The first offset appended at ``time_ms`` or later; the end if there is none."""
        topic = self.topics.readable(name, partition_id)
        return await self._reads.call(self._store.offset_at, topic.topic_id, partition_id, time_ms)

    def bounds(self, name: str, partition_id: int) -> Bounds:
        """First and next offset of a partition."""
        return self._bounds(self.topics.readable(name, partition_id), partition_id)

    def describe(self, names: Iterable[str], group: GroupName | None) -> list[PartitionFacts]:
        """Facts about all partitions of the topics (all topics if none is named)."""
        chosen = set(names)
        facts: list[PartitionFacts] = []
        for topic in self.topics:
            if (chosen and topic.name not in chosen) or topic.status >= 2:
                continue
            for partition_id in topic.partition_ids():
                committed: int | None = None
                holder: str | None = None
                if group is not None:
                    claim = Claim(group, topic.name, partition_id)
                    committed = self.offsets.get(claim, topic.topic_id)
                    hold = self.holders.find(claim)
                    holder = hold.client if hold is not None else None
                bounds = self._bounds(topic, partition_id)
                facts.append(PartitionFacts(topic.name, partition_id, bounds, committed, holder))
        return facts

    # operators, through the master

    async def reset(self, claim: Claim, offset: int) -> tuple[int | None, int]:
        """Set a group's offset, moved into what exists, and end the hold; return old and new."""
        topic = self.topics.readable(claim.topic, claim.partition_id)
        bounds = self._bounds(topic, claim.partition_id)
        old = self.offsets.get(claim, topic.topic_id)
        target = min(max(offset, bounds.first_offset), bounds.next_offset)
        self.holders.evict(claim)
        self.flow.forget(claim)
        self.reader.wake(topic.topic_id, claim.partition_id)
        await self.ledger.reset(claim, topic.topic_id, target)
        return old, target

    def expire(self) -> list[tuple[Claim, Hold]]:
        """End the holds of silent consumers; return them."""
        return self.holders.expire(self._now_s())

    # private

    def _bounds(self, topic: TopicSettings, partition_id: int) -> Bounds:
        return self._store.bounds(topic.topic_id, partition_id)  # memory only, no disk

    async def _read(
        self,
        topic: TopicSettings,
        partition_id: int,
        offset: int,
        bytes_max: int,
        end: int | None = None,
    ) -> ReadResult:
        return await self.reader.read(topic.topic_id, partition_id, offset, bytes_max, end)

    async def _pull(
        self, claim: Claim, topic: TopicSettings, hold: Hold, offset: int, bytes_max: int
    ) -> Cut:
        scan_bytes = SCAN_BYTES_MAX if hold.filters else bytes_max
        found = await self._read(topic, claim.partition_id, offset, scan_bytes)
        return _cut(found, offset, bytes_max, None, hold.filters)

    def _pulled(
        self, claim: Claim, hold: Hold, answer: Cut, offset: int, topic: TopicSettings
    ) -> Pulled:
        hold.pending = answer.next_offset
        if not answer.count and self.offsets.get(claim, topic.topic_id) == offset:
            # Nothing matched, and nothing given before waits for its commit: no second look is needed.
            self._commit_soon(claim, topic, answer.next_offset)
            hold.pending = None
        self._count(answer)
        self.flow.sent(claim, answer.byte_count, self._now_s())
        bounds = self._bounds(topic, claim.partition_id)
        lag_bytes = _lag_bytes(bounds, answer.next_offset)
        slow = bool(hold.filters) and not lag_bytes
        return Pulled(answer, offset, bounds.first_offset, bounds.next_offset, lag_bytes, slow)

    def _count(self, answer: Cut) -> None:
        self.pulled_messages += answer.count
        self.pulled_bytes += answer.byte_count

    def _position(
        self, claim: Claim, topic: TopicSettings, hold: Hold, bounds: Bounds, *, manual: bool
    ) -> int:
        committed = self.offsets.get(claim, topic.topic_id)
        offset = bounds.first_offset if committed is None else committed
        if manual and hold.pending is not None:
            offset = hold.pending
        return max(offset, bounds.first_offset)

    def _commit_soon(self, claim: Claim, topic: TopicSettings, offset: int) -> None:
        self.ledger.commit_soon(claim, topic.topic_id, offset)

    def _check_flow(self, claim: Claim, lag_bytes: int) -> None:
        wait_ms = self.flow.wait_ms(claim, lag_bytes, self._now_s(), self._wall_ms())
        if wait_ms:
            raise SpeedLimitError(f"flow control: wait {wait_ms} ms", wait_ms=wait_ms)

    def _same(self, claim: Claim, client: ClientId, hold: Hold, turn: int | None = None) -> None:
        """Check that the hold is still this one, and that no later pull took over."""
        if self.holders.check(claim, client) is not hold:
            raise NotRegisteredError(f"{claim} was registered again meanwhile")
        if turn is not None and hold.turn != turn:
            raise NotFoundError("a later pull of this partition took over")


def _lag_bytes(bounds: Bounds, offset: int) -> int:
    """About how many bytes lie behind ``offset``: its share of the partition's bytes."""
    total = bounds.next_offset - bounds.first_offset
    left = bounds.next_offset - max(offset, bounds.first_offset)
    return bounds.bytes * left // total if total > 0 and left > 0 else 0


def _cut(
    found: ReadResult, offset: int, bytes_max: int, end_offset: int | None, filters: frozenset[int]
) -> Cut:
    """``cut``, and past the damage that the read met behind the last block."""
    answer = cut(found.blocks, offset, bytes_max, end_offset=end_offset, filters=filters)
    if found.gaps and (not found.blocks or answer.next_offset == found.blocks[-1].end_offset):
        answer.next_offset = max(answer.next_offset, found.next_offset)
    return answer

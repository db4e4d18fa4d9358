"""The consumer's core: membership with the master, holds and pulls at the brokers.

Three kinds of coroutines run: one heartbeat with the master, one heartbeat with all brokers, and one pull
per held partition.  What users do (take, acknowledge, seek) only touches the buffer and the positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tube.client.credentials import Credentials
from tube.client.fetching import Buffer, Position
from tube.client.holding import Holding
from tube.client.link import Links, Masters
from tube.client.membership import Event, Membership
from tube.client.options import ClientOptions, ConsumerOptions
from tube.client.publishing import retry_pause_s
from tube.client.pulling import Pulling
from tube.client.runtime import Cancellable, Runtime, Signal, sleep
from tube.client.session import learn_tokens
from tube.client.values import Message
from tube.errors import (
    BadRequestError,
    CertificateError,
    ClosedError,
    NotRegisteredError,
    StaleAssignmentError,
    TimedOutError,
    TubeError,
    UnreachableError,
)
from tube.pb import BrokerService_pb2 as broker_pb
from tube.pb import MasterService_pb2 as pb
from tube.values import Partition
from tube.wire import feature, rpc
from tube.wire.records import (
    PlacedPartition,
    TopicCondition,
    check_filters,
    check_group,
    check_topics,
    format_condition,
)
from tube.wire.rpc import Method

CORRUPT_MAX: Final = 1000
"""So many offsets of corrupt messages are remembered."""

Hook = Callable[[list[Partition]], object]


class Consumer:
    """One member of a consumer group.

    Called on the runtime's thread, except ``take`` and ``acked`` (which only touch what the caller owns).
    """

    def __init__(
        self,
        runtime: Runtime,
        links: Links,
        masters: Masters,
        client_options: ClientOptions,
        options: ConsumerOptions,
        *,
        client_id: str,
        group: str,
        topics: Iterable[str],
        filters: Mapping[str, Iterable[str]],
        on_assign: Hook | None,
        on_revoke: Hook | None,
        report: Callable[[str], None],
    ) -> None:
        self.topics = sorted(set(topics))
        self.filters = {topic: sorted(set(items)) for topic, items in filters.items() if items}
        check_group(group)
        check_topics(self.topics)
        for items in self.filters.values():
            check_filters(items)
        if not self.topics or set(self.filters) - set(self.topics):
            raise BadRequestError("a consumer needs topics, and filters only for those")
        if options.start not in ("earliest", "latest"):
            raise BadRequestError(f"start is {options.start!r}, not 'earliest' or 'latest'")
        self.options = options
        self.membership = Membership(client_id, group)
        self.buffer = Buffer()
        self.corrupt: deque[int] = deque(maxlen=CORRUPT_MAX)
        self.positions: dict[Partition, Position] = {}
        self.failure: TubeError | None = None
        self.tokens = broker_pb.AuthorizedInfo(visitAuthorizedToken=0)
        self._runtime = runtime
        self._masters = masters
        self._client_options = client_options
        self._credentials = Credentials(runtime, client_options, self.tokens)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self.report = report
        self._holding = Holding(self, runtime, links, client_options)
        self._pulling = Pulling(self, self._holding, runtime)
        self._loops: list[Cancellable] = []
        self._working: Cancellable | None = None
        self._busy = False
        self._arrived = Signal[None](runtime)
        self._hurry = Signal[None](runtime)
        self._assigned = Signal[None](runtime)
        self._taken_at_s = runtime.now_s()
        self._ours = False
        self._registered = False
        self._closing = False

    @property
    def client_id(self) -> str:
        """The name of this member."""
        return self.membership.client_id

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closing

    # life

    async def start(self) -> None:
        """Register with the master; partitions come later.

        Raises:
            RefusedError: the group does not take this member, or the topic is not there.
            UnreachableError: no master answers.
        """
        await self._register()
        spawn = self._runtime.spawn
        self._loops = [
            spawn(self._beat_master(), self.died),
            spawn(self._holding.beat_brokers(), self.died),
            spawn(self._commit_often(), self.died),
            spawn(self._watch_progress(), self.died),
        ]

    async def close(self) -> None:
        """Commit, release the partitions, leave the group."""
        if self._closing:
            return
        self._closing = True
        for loop in self._loops:
            loop.cancel()
        if self._working is not None:
            self._working.cancel()
        await self._give_up(list(self.membership.held), commit=self.failure is None)
        if self._registered:
            request = pb.CloseRequestC2M(
                clientId=self.client_id,
                groupName=self.membership.group,
                authInfo=self._credentials.show(sign=True),
            )
            try:
                await self._masters.call(Method.CLOSE_CONSUMER, request.SerializeToString(), 2.0)
            except TubeError as error:
                self.report(f"leaving the group: {error}")
        self._registered = False
        self._arrived.fire()

    # what users do

    def take(self, count_max: int) -> list[Message]:
        """Fetched messages, [] when there are none now.

        Raises:
            TubeError: the consumer failed for good, or is closed.
        """
        self._taken_at_s = self._runtime.now_s()
        if not self.buffer:
            if self.failure is not None:
                raise self.failure
            if self._closing:
                raise ClosedError("the consumer is closed")
            return []
        paused = frozenset(p for p, position in self.positions.items() if position.paused)
        before = self.buffer.byte_count
        messages = self.buffer.take(count_max, paused)
        for message in messages:
            position = self.positions.get(message.partition)
            if position is not None:
                position.handed = message.offset + 1
        if self.buffer.byte_count != before:
            self._pulling.settle()
        return messages

    async def arrived(self, timeout_s: float | None) -> None:
        """Wait for messages, a failure or the end."""
        self._taken_at_s = self._runtime.now_s()
        if not self.buffer and self.failure is None and not self._closing:
            await self._arrived.wait(timeout_s)
        self._taken_at_s = self._runtime.now_s()

    def acked(self, partition: Partition, offset: int) -> None:
        """Everything up to and with ``offset`` is done.

        Raises:
            StaleAssignmentError: the partition has moved to another member.
        """
        self.membership.check(partition)
        position = self.positions.get(partition)
        if position is None:  # it is being taken away at this moment
            raise StaleAssignmentError(f"{partition} was taken from {self.client_id}")
        position.acked = max(position.acked, offset + 1)

    async def commit(self) -> None:
        """Make all acknowledgements durable at the brokers.

        Raises:
            TubeError: one of them failed; the others are done, except those of the same broker.
        """
        failure: TubeError | None = None
        dead: set[int] = set()
        for position in list(self.positions.values()):
            broker_id = position.partition.broker_id
            self._pass_over(position)
            if position.acked <= position.committed or broker_id in dead:
                continue
            try:
                await self._holding.commit(position)
                if not position.exact:
                    self._pulling.go_on()  # only now is there something new to pull
            except TubeError as error:
                failure = failure or error
                if isinstance(error, UnreachableError | TimedOutError):
                    dead.add(broker_id)
        if failure is not None:
            raise failure

    def _pass_over(self, position: Position) -> None:
        """What a filter left out behind the last acknowledged message is done, too."""
        if (
            position.exact
            and position.acked >= position.handed
            and not self.buffer.has(position.partition)
        ):
            position.acked = max(position.acked, position.next_offset)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Hand out and fetch nothing of these until ``resume``; they stay held."""
        for partition in partitions:
            self.membership.check(partition)
            self.positions[partition].paused = True

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Go on."""
        for partition in partitions:
            self.membership.check(partition)
            self.positions[partition].paused = False
        self._pulling.go_on()
        self._arrived.fire()

    async def seek(self, partition: Partition, offset: int) -> None:
        """Go on reading at ``offset``, moved into what exists; what was fetched is dropped.

        Raises:
            StaleAssignmentError: the partition is not held.  TubeError: the broker refused.
        """
        self.membership.check(partition)
        place = self.membership.held[partition]
        self._pulling.stop([partition])
        try:
            position = await self._holding.register(place, offset=max(0, offset))
        except TubeError:
            await self.lose([partition])
            raise
        position.paused = self.positions[partition].paused
        self.positions[partition] = position
        self._pulling.start(partition)

    async def when_assigned(self, timeout_s: float | None) -> bool:
        """Wait until the assignment changes; False when ``timeout_s`` passed."""
        return await self._assigned.wait(timeout_s)

    # with the master

    async def _register(self) -> None:
        request = pb.RegisterRequestC2M(
            clientId=self.client_id,
            groupName=self.membership.group,
            hostName=self._runtime.identity().split("-", 1)[0],
            topicList=self.topics,
            subscribeInfo=self.membership.held_texts(),
            topicCondition=[
                format_condition(TopicCondition(topic, tuple(items)))
                for topic, items in self.filters.items()
            ],
            requireBound=False,
            sessionTime=self._runtime.wall_ms(),
            totalCount=-1,
            notAllocated=not self.membership.held,
            selectBig=True,
            groupFlowCheckId=-2,
            defFlowCheckId=-2,
            qryPriorityId=-2,
            authInfo=self._credentials.show(sign=True),
            client_features=feature.ALL,
        )
        body = await self._masters.call(
            Method.REGISTER_CONSUMER, request.SerializeToString(), self._client_options.call_s
        )
        answer = rpc.parse(pb.RegisterResponseM2C, body)
        self._credentials.check(answer)
        self._ours = bool(answer.server_features & feature.WAIT)
        learn_tokens(self.tokens, answer)
        self._registered = True

    async def _beat_master(self) -> None:
        attempt = 0
        while True:
            try:
                if not self._registered:
                    await self._register()
                await self._heartbeat()
                attempt = 0
            except NotRegisteredError:
                self._registered = False
                self.membership.forgotten()
            except TubeError as error:
                if self._credentials.final(error, registered=self._registered):
                    self._fail(error)
                    return
                if isinstance(error, CertificateError):  # registering signs
                    self._registered = False
                    self.membership.forgotten()
                self.report(f"master: {error}")
                attempt += 1
                await self._hurry.wait(retry_pause_s(attempt, self._runtime.random_bits(8) / 255))

    async def _heartbeat(self) -> None:
        report = self.membership.report()
        request = pb.HeartRequestC2M(
            clientId=self.client_id,
            groupName=self.membership.group,
            subscribeInfo=report.held,
            reportSubscribeInfo=report.full,
            defFlowCheckId=-2,
            groupFlowCheckId=-2,
            qryPriorityId=-2,
            authInfo=self._credentials.show(),
        )
        if report.done is not None:
            request.event.rebalanceId = report.done.round_id
            request.event.opType = report.done.op_type
            request.event.status = 2
            request.event.subscribeInfo.extend(report.done_texts)
        held = self._ours and report.done is None and not self._busy
        wait_s = self._client_options.heartbeat_s if held else 0.0
        request.wait_ms = int(wait_s * 1000)
        body = await self._masters.call(
            Method.HEARTBEAT_CONSUMER,
            request.SerializeToString(),
            wait_s + self._client_options.call_s,
        )
        answer = rpc.parse(pb.HeartResponseM2C, body)
        self._credentials.check(answer)
        self.membership.reported(report)
        learn_tokens(self.tokens, answer)
        if self._credentials.asked(answer.requireAuth):
            return
        if answer.HasField("event"):
            event = self.membership.event(
                answer.event.rebalanceId,
                answer.event.opType,
                answer.event.subscribeInfo,
                answer.event.reason,
            )
            if event is not None:
                self._busy = True  # before the work begins: it may be done when spawn returns
                self._working = self._runtime.spawn(self._work(event), self.died)
        if self._busy or not self._ours:
            await self._hurry.wait(self._client_options.heartbeat_s / 3)

    async def _work(self, event: Event) -> None:
        """Carry out an event; the next heartbeat reports it."""
        partitions = [place.partition for place in event.places]
        try:
            if event.drops:
                await self._give_up(
                    [p for p in partitions if p in self.membership.held], commit=True
                )
            else:
                await self._take_over(event.places)
        finally:
            self.membership.finished(event)
            self._busy = False
            self._hurry.fire()
            self._assigned.fire()

    async def _take_over(self, places: Iterable[PlacedPartition]) -> None:
        taken = []
        for place in places:
            if place.partition in self.membership.held:
                continue
            try:
                position = await self._holding.register(place)
            except TubeError as error:
                self.report(f"taking {place.partition}: {error}")
                continue
            self.membership.took(place)
            self.positions[place.partition] = position
            taken.append(place.partition)
        if taken and self._on_assign is not None:
            await self._runtime.call_user(self._on_assign, taken)
        for partition in taken:
            if partition in self.positions:
                self._pulling.start(partition)

    async def _give_up(self, partitions: list[Partition], *, commit: bool) -> None:
        """Stop reading, tell the user, commit, release."""
        if not partitions:
            return
        for partition in partitions:
            if partition in self.positions:
                self._pass_over(self.positions[partition])
        self._pulling.stop(partitions)
        if self._on_revoke is not None:
            await self._runtime.call_user(self._on_revoke, partitions)
        await self._release(partitions, commit=commit)

    async def _release(self, partitions: list[Partition], *, commit: bool) -> None:
        """Commit what is acknowledged and end the holds."""
        dead: set[int] = set()
        for partition in partitions:
            place = self.membership.held.get(partition)
            position = self.positions.get(partition)
            if place is None or position is None:
                continue
            try:
                if partition.broker_id not in dead:
                    if commit and position.acked > position.committed:
                        await self._holding.commit(position)
                    await self._holding.unregister(place)
            except TubeError as error:
                self.report(f"releasing {partition}: {error}")
                if isinstance(error, UnreachableError | TimedOutError):
                    dead.add(partition.broker_id)  # its other holds run out by themselves
            self.membership.lost(partition)
            self.positions.pop(partition, None)

    async def lose(self, partitions: list[Partition]) -> None:
        """Brokers say that these are not ours any more."""
        mine = [p for p in partitions if p in self.membership.held]
        if not mine:
            return
        self._pulling.stop(mine)
        for partition in mine:
            self.membership.lost(partition)
            self.positions.pop(partition, None)
        if self._on_revoke is not None:
            await self._runtime.call_user(self._on_revoke, mine)
        self._assigned.fire()
        self._hurry.fire()

    async def _commit_often(self) -> None:
        while True:
            await sleep(self._runtime, self.options.ack_interval_s)
            try:
                await self.commit()
            except TubeError as error:
                self.report(f"committing: {error}")

    async def _watch_progress(self) -> None:
        """Leave the group when the user's code is stuck: another member shall have the messages."""
        limit_s = self.options.max_processing_s
        while True:
            await sleep(self._runtime, min(1.0, limit_s / 4))
            waiting = bool(self.buffer) or any(p.handed > p.acked for p in self.positions.values())
            if waiting and self._runtime.now_s() - self._taken_at_s > limit_s:
                error = TimedOutError(
                    f"no message was asked for within max_processing_s = {limit_s:g} s; the consumer has left "
                    f"the group {self.membership.group} (its heartbeats were fine)",
                    hint="process faster, in smaller batches, or raise max_processing_s",
                )
                self._runtime.spawn(self._leave(error), self.died)
                return

    async def _leave(self, error: TubeError) -> None:
        self._fail(error)
        await self.close()

    def _fail(self, error: TubeError) -> None:
        self.failure = error
        self._arrived.fire()

    def fetched(self) -> None:
        """For ``Pulling``: there is something to take."""
        self._arrived.fire()

    def died(self, error: Exception) -> None:
        """A coroutine of this consumer ended with an error: the consumer is over."""
        self._fail(
            error if isinstance(error, TubeError) else TubeError(f"the consumer failed: {error!r}")
        )

"""The listener for TubeMQ clients: translates frames to service verbs and back, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tube.broker.admission import Admission
from tube.broker.appender import Batch
from tube.broker.gateways import sending
from tube.broker.gateways.refusals import REFUSALS, brief
from tube.broker.gateways.sending import Sends
from tube.broker.holders import Claim
from tube.broker.service import BrokerService, Pulled
from tube.errors import (
    BadRequestError,
    FrameTooLargeError,
    RefusedError,
    TubeError,
    UnknownMethodError,
    WireError,
)
from tube.limits import (
    BATCH_BYTES_MAX,
    BLOCK_BYTES_MAX,
    FRAME_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLY_BYTES_MAX,
    SMALL_CALL_BYTES_MAX,
)
from tube.net.framed import FramedProtocol
from tube.pb import BrokerService_pb2 as pb
from tube.pb import TubeExtensions_pb2 as ext
from tube.values import ClientId, GroupName
from tube.wire import feature, records, rpc, run
from tube.wire import message as payloads
from tube.wire.frame import Frame
from tube.wire.rpc import Call, Method

log = Logger(namespace="tube.broker.gateways.tube")

OK = 200
OK_TEXT = "OK!"
REGISTER, UNREGISTER = 31, 32

MESSAGE_HEAD_BYTES = 64
"""More than what a run adds to a message: tags, lengths, id, checksum, flag, type."""

UNADMITTED_BYTES_MAX = 128 * 1024 * 1024
"""What all peers together may send in first calls that are larger than the limit for strangers."""

Parts = list[bytes | memoryview]


@dataclass(slots=True)
class Asked:
    """A call, and the room that its answer takes of the connection's."""

    connection: FramedProtocol
    call: Call
    reserved_bytes: int = 0

    async def room(self, byte_count: int) -> None:
        """Wait until the peer has read enough of its answers."""
        await self.connection.reserve(byte_count)
        self.reserved_bytes += byte_count


Verb = Callable[[Asked], Coroutine[Deferred[Any], Any, Parts]]


class TubeGateway:
    """Serves methods 13, 15-18 and 64-67 on connections.

    ``next_id`` makes message ids, unique on this broker.
    """

    def __init__(
        self,
        service: BrokerService,
        admission: Admission,
        broker_id: int,
        next_id: Callable[[], int],
    ) -> None:
        self._service = service
        self._admission = admission
        self._broker_id = broker_id
        self._next_id = next_id
        self._unadmitted: dict[FramedProtocol, int] = {}
        self._waiting: dict[FramedProtocol, set[Deferred[None]]] = {}
        self.calls_refused = 0
        self._verbs: dict[int, Verb] = {
            Method.REGISTER_PARTITION: self._register,
            Method.HEARTBEAT_PARTITIONS: self._heartbeat,
            Method.GET_MESSAGE: self._get,
            Method.COMMIT_OFFSET: self._commit,
            Method.SEND_BATCH: self._send_batch,
            Method.FETCH: self._fetch,
            Method.LIST_OFFSETS: self._list_offsets,
            Method.DESCRIBE: self._describe,
        }

    # connections

    def received(self, connection: FramedProtocol, frames: list[Frame]) -> None:
        """All frames of one read."""
        sends: Sends | None = None
        for frame in frames:
            try:
                call = rpc.decode_call(frame)
            except rpc.MalformedCallError as error:
                name = rpc.refusal_name(error, None)
                connection.write(rpc.encode_refusal(error.serial, None, True, name, brief(error)))
                continue
            if call.method == Method.SEND_MESSAGE:
                if sends is None:
                    sends = Sends(
                        self._service.topics,
                        self._next_id,
                        self._admission.admit_producer,
                        self._service.send,
                    )
                self._send(connection, call, sends)
            else:
                self._begin(connection, call)
        if sends is not None:
            sends.flush()

    def lost(self, connection: FramedProtocol, _reason: Failure) -> None:
        """A connection ended; holds stay until they run out, another connection may renew them."""
        self._unadmitted.pop(connection, None)
        for waiting in list(self._waiting.pop(connection, ())):
            waiting.cancel()

    def limit(self, connection: FramedProtocol, prefix: bytes) -> int:
        """How long a frame may be that begins with ``prefix``.

        Raises:
            FrameTooLargeError: a stranger's, and strangers use all that they may together.
        """
        method = rpc.peek_method(prefix)
        if method == Method.SEND_MESSAGE:
            allowed = FRAME_BYTES_MAX
        elif method == Method.SEND_BATCH:
            allowed = BATCH_BYTES_MAX + SMALL_CALL_BYTES_MAX
        else:
            return SMALL_CALL_BYTES_MAX
        if not connection.admitted:
            if len(self._unadmitted) * FRAME_BYTES_MAX > UNADMITTED_BYTES_MAX:
                raise FrameTooLargeError("too many large first calls at a time")
            self._unadmitted[connection] = allowed
        return allowed

    # calls

    def _send(self, connection: FramedProtocol, call: Call, sends: Sends) -> None:
        try:
            sends.add(connection, call)
            if not connection.admitted:
                self._admit(connection)
        except WireError as error:
            self._fatal(connection, call, error)
        except TubeError as error:
            self.calls_refused += 1
            connection.write(sending.refuse_call(call, error))

    def _begin(self, connection: FramedProtocol, call: Call) -> None:
        verb = self._verbs.get(call.method)
        if verb is None:
            error = UnknownMethodError(
                f"IPC server handle request error :Unsupported method ID :{call.method}"
            )
            self._fatal(connection, call, error)
            return
        connection.begin(1, len(call.body))
        answering = Deferred.fromCoroutine(self._answer(Asked(connection, call), verb))
        if call.method in _MAY_WAIT and not answering.called and not connection.closed:
            waiting = self._waiting.setdefault(connection, set())
            waiting.add(answering)
            answering.addBoth(lambda _none: waiting.discard(answering))

    async def _answer(self, asked: Asked, verb: Verb) -> None:
        """Await the verb and write what it says; never raises."""
        connection, call = asked.connection, asked.call
        try:
            await asked.room(0)
            parts = await verb(asked)
            if not connection.admitted:
                self._admit(connection)
            announced = (
                isinstance(connection.session, int) and connection.session & feature.ONE_BLOCK
            )
            block_bytes = None if announced else BLOCK_BYTES_MAX
            pieces = rpc.encode_reply_parts(
                call.serial, call.method, call.protocol_version, parts, block_bytes
            )
            connection.write(b"".join(pieces))
        except CancelledError:
            pass  # the connection is lost
        except WireError as error:
            self._fatal(connection, call, error)
        except TubeError as error:
            self.calls_refused += 1
            body = REFUSALS[call.method](error).SerializeToString()
            connection.write(
                rpc.encode_reply(call.serial, call.method, call.protocol_version, body)
            )
        except Exception:
            log.failure("method {method}: failed", method=call.method, peer=connection.connected_to)
            body = REFUSALS[call.method](TubeError("internal error")).SerializeToString()
            connection.write(
                rpc.encode_reply(call.serial, call.method, call.protocol_version, body)
            )
        finally:
            connection.release(asked.reserved_bytes)
            connection.end(1, len(call.body))

    def _admit(self, connection: FramedProtocol) -> None:
        connection.admit()
        self._unadmitted.pop(connection, None)

    def _fatal(self, connection: FramedProtocol, call: Call, error: WireError) -> None:
        self.calls_refused += 1
        name = rpc.refusal_name(error, call.protocol_version)
        connection.write(rpc.encode_refusal(call.serial, None, True, name, brief(error)))

    # verbs

    async def _register(self, asked: Asked) -> Parts:
        request = rpc.parse(pb.RegisterRequestC2B, asked.call.body)
        claim, client = _claim(request), _client(request.clientId)
        self._admission.admit_consumer(request.authInfo, request.topicName)
        if request.opType == UNREGISTER:
            await self._service.unregister(claim, client, keep=request.readStatus == 0)
            answer = pb.RegisterResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT, currOffset=-1)
            return [answer.SerializeToString()]
        if request.opType != REGISTER:
            raise BadRequestError(f"opType {request.opType} is not {REGISTER} or {UNREGISTER}")
        if request.client_features:
            asked.connection.session = request.client_features & feature.ALL
        wanted = (
            request.currOffset
            if request.HasField("currOffset") and request.currOffset >= 0
            else None
        )
        registered = await self._service.register(
            claim,
            client,
            start=request.readStatus,
            wanted=wanted,
            filters=_filters(request.filterCondStr),
            features=request.client_features,
            peer=asked.connection.connected_to,
        )
        answer = pb.RegisterResponseB2C(
            success=True,
            errCode=OK,
            errMsg=OK_TEXT,
            currOffset=registered.offset,
            maxOffset=registered.end_offset,
        )
        if request.client_features:
            answer.server_features = feature.ALL
        return [answer.SerializeToString()]

    async def _heartbeat(self, asked: Asked) -> Parts:
        request = rpc.parse(pb.HeartBeatRequestC2B, asked.call.body)
        client = _client(request.clientId)
        texts: dict[Claim, str] = {}
        for text in request.partitionInfo:
            place = records.parse_partition(text)
            self._admission.admit_consumer(request.authInfo, place.topic)
            texts[Claim(GroupName(request.groupName), place.topic, place.partition_id)] = text
        failures = self._service.heartbeat(texts, client)
        answer = pb.HeartBeatResponseB2C(
            success=True,
            errCode=OK,
            errMsg=OK_TEXT,
            hasPartFailure=bool(failures),
            failureInfo=[f"{error.code}:{texts[claim]}" for claim, error in failures],
            requireAuth=False,
        )
        return [answer.SerializeToString()]

    async def _get(self, asked: Asked) -> Parts:
        request = rpc.parse(pb.GetMessageRequestC2B, asked.call.body)
        if request.client_features:
            asked.connection.session = request.client_features & feature.ALL
        claim, client = _claim(request), _client(request.clientId)
        if not asked.connection.admitted and self._service.holds(claim, client):
            self._admit(asked.connection)  # before it waits: a stranger's time is limited
        pulled = await self._service.get(
            claim,
            client,
            commit_last=request.lastPackConsumed,
            manual=request.manualCommitOffset,
            wait_ms=min(request.wait_ms, max(0, asked.call.timeout_ms - 500)),
            bytes_max=min(request.bytes_max, REPLY_BYTES_MAX),
            room=asked.room,
        )
        head = pb.GetMessageResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT)
        tail = pb.GetMessageResponseB2C(
            currOffset=pulled.offset,
            escFlowCtrl=False,
            currDataDlt=pulled.lag_bytes,
            requireSlow=pulled.require_slow,
            maxOffset=pulled.end_offset,
        )
        if request.client_features & feature.SPANS:
            _add_spans(tail, pulled)
        return [head.SerializeToString(), *pulled.cut.parts, tail.SerializePartialToString()]

    async def _commit(self, asked: Asked) -> Parts:
        request = rpc.parse(pb.CommitOffsetRequestC2B, asked.call.body)
        committed = await self._service.commit(
            _claim(request),
            _client(request.clientId),
            accept=request.lastPackConsumed,
            offset=request.offset if request.HasField("offset") else None,
        )
        answer = pb.CommitOffsetResponseB2C(
            success=True,
            errCode=OK,
            errMsg=OK_TEXT,
            currOffset=committed.offset,
            maxOffset=committed.end_offset,
        )
        return [answer.SerializeToString()]

    async def _send_batch(self, asked: Asked) -> Parts:
        request = rpc.parse(ext.SendBatchRequestP2B, asked.call.body)
        self._admission.admit_producer(request.authInfo, request.topicName)
        topic = self._service.topics.publishable(request.topicName, request.partitionId)
        asked.connection.session = feature.ALL
        payload = request.messages
        run.verify(payload, request.count)
        _check_sizes(payload, topic.payload_bytes_max)
        if request.producerId < 0 or request.producerEpoch < 0:
            raise BadRequestError("producer id and epoch are not negative")
        batch = Batch(
            topic.topic_id,
            request.partitionId,
            topic.durable,
            [payload],
            len(payload),
            request.count,
            request.filterBits,
            done=lambda _batch, _result: None,
            max_time_ms=max(0, request.maxTimeMs),
            producer_id=request.producerId,
            producer_epoch=request.producerEpoch,
            sequence=request.sequence & 0xFFFFFFFF,
        )
        result = await self._service.send_one(batch)
        answer = ext.SendBatchResponseB2P(
            success=True,
            errCode=OK,
            errMsg=OK_TEXT,
            baseOffset=result.base_offset,
            appendTime=result.append_time_ms,
            durable=topic.durable,
        )
        return [answer.SerializeToString()]

    async def _fetch(self, asked: Asked) -> Parts:
        request = rpc.parse(ext.FetchRequestC2B, asked.call.body)
        self._admission.admit_consumer(request.authInfo, request.topicName)
        self._service.topics.readable(request.topicName, request.partitionId)
        if not asked.connection.admitted:
            self._admit(asked.connection)  # before it waits
        asked.connection.session = feature.ALL
        pulled = await self._service.fetch(
            request.topicName,
            request.partitionId,
            request.offset,
            bytes_max=request.bytesMax,
            end_offset=request.endOffset if request.HasField("endOffset") else None,
            wait_ms=min(request.waitMs, max(0, asked.call.timeout_ms - 500)),
            filters=_filters(request.filterCondStr),
            room=asked.room,
        )
        head = ext.FetchResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT)
        tail = ext.FetchResponseB2C(firstOffset=pulled.first_offset, maxOffset=pulled.end_offset)
        _add_spans(tail, pulled)
        return [head.SerializeToString(), *pulled.cut.parts, tail.SerializePartialToString()]

    async def _list_offsets(self, asked: Asked) -> Parts:
        request = rpc.parse(ext.ListOffsetsRequestC2B, asked.call.body)
        self._admission.admit_consumer(request.authInfo, request.topicName)
        if len(request.partitionId) > PARTITIONS_PER_TOPIC_MAX:
            count = len(request.partitionId)
            raise BadRequestError(f"{count} partitions, the limit is {PARTITIONS_PER_TOPIC_MAX}")
        answer = ext.ListOffsetsResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT)
        for partition_id in request.partitionId:
            row = answer.offsets.add(partitionId=partition_id, errCode=OK)
            try:
                bounds = self._service.bounds(request.topicName, partition_id)
                row.firstOffset, row.nextOffset = bounds.first_offset, bounds.next_offset
                if request.HasField("timeMs"):
                    row.timeOffset = await self._service.offset_at(
                        request.topicName, partition_id, request.timeMs
                    )
            except RefusedError as error:
                row.errCode = error.code
        return [answer.SerializeToString()]

    async def _describe(self, asked: Asked) -> Parts:
        request = rpc.parse(ext.DescribeRequestC2B, asked.call.body)
        for name in request.topicName:
            self._admission.admit_consumer(request.authInfo, name)
        answer = ext.DescribeResponseB2C(
            success=True, errCode=OK, errMsg=OK_TEXT, brokerId=self._broker_id, features=feature.ALL
        )
        for topic in self._service.topics:
            if not request.topicName or topic.name in request.topicName:
                answer.topics.add(
                    topicName=topic.name,
                    durable=topic.durable,
                    maxMessageBytes=topic.message_bytes_max,
                    acceptPublish=topic.accept_publish,
                    acceptSubscribe=topic.accept_subscribe,
                )
        group = GroupName(request.groupName) if request.HasField("groupName") else None
        for facts in self._service.describe(request.topicName, group):
            answer.partitions.add(
                topicName=facts.topic,
                partitionId=facts.partition_id,
                firstOffset=facts.bounds.first_offset,
                nextOffset=facts.bounds.next_offset,
                bytes=facts.bounds.bytes,
                committedOffset=facts.committed,
                holder=facts.holder,
                readOnly=facts.bounds.read_only,
            )
        return [answer.SerializeToString()]


_MAY_WAIT = frozenset({Method.GET_MESSAGE, Method.FETCH})
"""Calls that end with their connection: nothing is lost with them, and nobody else would end their wait."""


def _claim(
    request: pb.RegisterRequestC2B | pb.GetMessageRequestC2B | pb.CommitOffsetRequestC2B,
) -> Claim:
    records.check_group(request.groupName)
    return Claim(GroupName(request.groupName), request.topicName, request.partitionId)


def _client(client_id: str) -> ClientId:
    records.check_client_id(client_id)
    return ClientId(client_id)


def _filters(items: Any) -> frozenset[int]:
    for item in items:
        records.check_filter(item)
    return frozenset(payloads.filter_hash(item) for item in items)


def _check_sizes(payload: bytes, bytes_max: int) -> None:
    """Refuse a run with a message over the topic's limit; most are smaller as a whole."""
    bytes_max += MESSAGE_HEAD_BYTES
    if len(payload) > bytes_max:
        starts = [*run.spans(payload), len(payload)]
        largest = max(stop - start for start, stop in pairwise(starts))
        if largest > bytes_max:
            raise BadRequestError(f"a message has about {largest} bytes, the limit is {bytes_max}")


def _add_spans(tail: pb.GetMessageResponseB2C | ext.FetchResponseB2C, pulled: Pulled) -> None:
    tail.next_offset = pulled.cut.next_offset
    for span in pulled.cut.spans:
        tail.spans.add(
            base_offset=span.base_offset, count=span.count, append_time_ms=span.append_time_ms
        )

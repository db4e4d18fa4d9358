"""The listener for TubeMQ clients: translates frames to service verbs and back, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from google.protobuf.message import Message
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tube.broker.admission import Admission
from tube.broker.appender import Batch
from tube.broker.gateways import sending
from tube.broker.gateways.sending import Sends
from tube.broker.holders import Claim
from tube.broker.service import BrokerService, Pulled
from tube.errors import (
    BadRequestError,
    FrameTooLargeError,
    NotFoundError,
    RefusedError,
    SpeedLimitError,
    TubeError,
    UnknownMethodError,
    WireError,
)
from tube.limits import (
    BATCH_BYTES_MAX,
    BLOCK_BYTES_MAX,
    FRAME_BYTES_MAX,
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

UNADMITTED_BYTES_MAX = 128 * 1024 * 1024
"""What all peers together may send in first calls that are larger than the limit for strangers."""

Parts = list[bytes | memoryview]
Verb = Callable[[FramedProtocol, Call], Coroutine[Deferred[Any], Any, Parts]]


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
                connection.write(rpc.encode_refusal(error.serial, None, True, name, str(error)))
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
        Deferred.fromCoroutine(self._answer(connection, call, verb))

    async def _answer(self, connection: FramedProtocol, call: Call, verb: Verb) -> None:
        """Await the verb and write what it says; never raises."""
        try:
            parts = await verb(connection, call)
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
        except WireError as error:
            self._fatal(connection, call, error)
        except TubeError as error:
            self.calls_refused += 1
            body = _REFUSALS[call.method](error).SerializeToString()
            connection.write(
                rpc.encode_reply(call.serial, call.method, call.protocol_version, body)
            )
        except Exception:
            log.failure("method {method}: failed", method=call.method, peer=connection.connected_to)
            body = _REFUSALS[call.method](TubeError("internal error")).SerializeToString()
            connection.write(
                rpc.encode_reply(call.serial, call.method, call.protocol_version, body)
            )
        finally:
            connection.end(1, len(call.body))

    def _admit(self, connection: FramedProtocol) -> None:
        connection.admit()
        self._unadmitted.pop(connection, None)

    def _fatal(self, connection: FramedProtocol, call: Call, error: WireError) -> None:
        self.calls_refused += 1
        name = rpc.refusal_name(error, call.protocol_version)
        connection.write(rpc.encode_refusal(call.serial, None, True, name, str(error)))

    # verbs

    async def _register(self, connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(pb.RegisterRequestC2B, call.body)
        claim, client = _claim(request), _client(request.clientId)
        self._admission.admit_consumer(request.authInfo, request.topicName)
        if request.opType == UNREGISTER:
            await self._service.unregister(claim, client, keep=request.readStatus == 0)
            answer = pb.RegisterResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT, currOffset=-1)
            return [answer.SerializeToString()]
        if request.opType != REGISTER:
            raise BadRequestError(f"opType {request.opType} is not {REGISTER} or {UNREGISTER}")
        if request.client_features:
            connection.session = request.client_features & feature.ALL
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
            peer=connection.connected_to,
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

    async def _heartbeat(self, _connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(pb.HeartBeatRequestC2B, call.body)
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

    async def _get(self, connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(pb.GetMessageRequestC2B, call.body)
        if request.client_features:
            connection.session = request.client_features & feature.ALL
        pulled = await self._service.get(
            _claim(request),
            _client(request.clientId),
            commit_last=request.lastPackConsumed,
            manual=request.manualCommitOffset,
            bypass_flow=request.escFlowCtrl,
            wait_ms=min(request.wait_ms, max(0, call.timeout_ms - 500)),
            bytes_max=min(request.bytes_max, REPLY_BYTES_MAX),
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

    async def _commit(self, _connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(pb.CommitOffsetRequestC2B, call.body)
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

    async def _send_batch(self, connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(ext.SendBatchRequestP2B, call.body)
        self._admission.admit_producer(request.authInfo, request.topicName)
        topic = self._service.topics.publishable(request.topicName, request.partitionId)
        connection.session = feature.ALL
        payload = request.messages
        run.verify(payload, request.count)
        batch = Batch(
            topic.topic_id,
            request.partitionId,
            topic.durable,
            [payload],
            len(payload),
            request.count,
            request.filterBits,
            done=lambda _batch, _result: None,
            max_time_ms=request.maxTimeMs,
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

    async def _fetch(self, connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(ext.FetchRequestC2B, call.body)
        self._admission.admit_consumer(request.authInfo, request.topicName)
        connection.session = feature.ALL
        pulled = await self._service.fetch(
            request.topicName,
            request.partitionId,
            request.offset,
            bytes_max=request.bytesMax,
            end_offset=request.endOffset if request.HasField("endOffset") else None,
            wait_ms=min(request.waitMs, max(0, call.timeout_ms - 500)),
            filters=_filters(request.filterCondStr),
        )
        head = ext.FetchResponseB2C(success=True, errCode=OK, errMsg=OK_TEXT)
        tail = ext.FetchResponseB2C(firstOffset=pulled.first_offset, maxOffset=pulled.end_offset)
        _add_spans(tail, pulled)
        return [head.SerializeToString(), *pulled.cut.parts, tail.SerializePartialToString()]

    async def _list_offsets(self, _connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(ext.ListOffsetsRequestC2B, call.body)
        self._admission.admit_consumer(request.authInfo, request.topicName)
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

    async def _describe(self, _connection: FramedProtocol, call: Call) -> Parts:
        request = rpc.parse(ext.DescribeRequestC2B, call.body)
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


def _plain(kind: Callable[..., Message], **extra: Any) -> Callable[[TubeError], Message]:
    """A refusal that fills success, errCode and errMsg, and ``extra``."""
    return lambda error: kind(success=False, errCode=error.code, errMsg=str(error), **extra)


def _refuse_get(error: TubeError) -> Message:
    answer = pb.GetMessageResponseB2C(
        success=False, errCode=error.code, errMsg=str(error), currOffset=-1, currDataDlt=-1
    )
    if isinstance(error, SpeedLimitError):
        answer.minLimitTime = error.wait_ms
    elif isinstance(error, NotFoundError):
        answer.minLimitTime = 0
    return answer


_REFUSALS: dict[int, Callable[[TubeError], Message]] = {
    Method.REGISTER_PARTITION: _plain(pb.RegisterResponseB2C, currOffset=-1),
    Method.HEARTBEAT_PARTITIONS: _plain(pb.HeartBeatResponseB2C, hasPartFailure=False),
    Method.GET_MESSAGE: _refuse_get,
    Method.COMMIT_OFFSET: _plain(pb.CommitOffsetResponseB2C, currOffset=-1),
    Method.SEND_BATCH: _plain(ext.SendBatchResponseB2P),
    Method.FETCH: _plain(ext.FetchResponseB2C),
    Method.LIST_OFFSETS: _plain(ext.ListOffsetsResponseB2C),
    Method.DESCRIBE: _plain(ext.DescribeResponseB2C),
}


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


def _add_spans(tail: pb.GetMessageResponseB2C | ext.FetchResponseB2C, pulled: Pulled) -> None:
    tail.next_offset = pulled.cut.next_offset
    for span in pulled.cut.spans:
        tail.spans.add(
            base_offset=span.base_offset, count=span.count, append_time_ms=span.append_time_ms
        )

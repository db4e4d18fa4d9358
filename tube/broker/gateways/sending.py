"""The hot path: SendMessage frames into batches, batches into answers.

All messages of one read of a connection that go to one partition become one ``Batch``; their answers go
out in one write.  What repeats is looked up once per read, not once per message.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from tube.broker.appender import Batch, Result
from tube.broker.gateways.refusals import brief
from tube.broker.topics import Topics, TopicSettings
from tube.errors import BadRequestError, ForbiddenError, TubeError, WireError
from tube.net.framed import FramedProtocol
from tube.pb.BrokerService_pb2 import AuthorizedInfo, SendMessageRequestP2B, SendMessageResponseB2P
from tube.wire import message as payloads
from tube.wire import rpc, run
from tube.wire.receipt import encode_receipt_frames
from tube.wire.rpc import Call, Method

NOT_COMPUTED = -1
"""``checkSum`` of all real clients (spec section 3.4)."""

FILTER_BYTES_MAX = 1024
"""Longest message type: 256 characters of at most 4 bytes."""


@dataclass(slots=True)
class Sending:
    """What a batch must remember to answer its senders."""

    connection: FramedProtocol
    topic: TopicSettings
    serials: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    message_ids: list[int] = field(default_factory=list)
    byte_count: int = 0
    fails_loudly: bool = False


class Sends:
    """The messages of one read of one connection, by partition.

    ``next_id`` makes message ids, ``admit(auth, topic)`` checks tokens, ``append`` takes a batch.
    """

    def __init__(
        self,
        topics: Topics,
        next_id: Callable[[], int],
        admit: Callable[[AuthorizedInfo, str], None],
        append: Callable[[Batch], None],
    ) -> None:
        self._topics = topics
        self._next_id = next_id
        self._admit = admit
        self._append = append
        self._batches: dict[tuple[str, int], Batch] = {}

    def add(self, connection: FramedProtocol, call: Call) -> None:
        """Check one SendMessage and put it into its batch.

        Raises:
            WireError: no SendMessage.  RefusedError: it is refused, nothing of it was kept.
        """
        request = _parse(call.body)
        data = request.data
        self._admit(request.authInfo, request.topicName)
        key = (request.topicName, request.partitionId)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._begin(connection, key, request.clientId)
        sending = batch.context
        assert isinstance(sending, Sending)
        check_sum = zlib.crc32(data) & 0x7FFFFFFF
        _check(request, data, check_sum, sending.topic)
        type_hash: int | None = None
        if request.msgType:
            type_hash = payloads.filter_hash(request.msgType)
            batch.filter_bits |= run.filter_bit(type_hash)
        message_id = self._next_id()
        encoded = run.encode_message(message_id, check_sum, data, request.flag, type_hash)
        batch.payload.append(encoded)
        batch.payload_bytes += len(encoded)
        batch.count += 1
        sending.serials.append(call.serial)
        sending.versions.append(call.protocol_version)
        sending.message_ids.append(message_id)
        sending.byte_count += len(call.body)

    def flush(self) -> None:
        """Hand all batches to the log."""
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            if batch.count:
                sending = batch.context
                assert isinstance(sending, Sending)
                sending.connection.begin(batch.count, sending.byte_count)
                self._append(batch)

    def _begin(self, connection: FramedProtocol, key: tuple[str, int], client_id: str) -> Batch:
        topic = self._topics.publishable(*key)
        sending = Sending(connection, topic, fails_loudly=_ignores_failures(client_id))
        batch = Batch(topic.topic_id, key[1], topic.durable, [], 0, 0, 0, _answer, context=sending)
        self._batches[key] = batch
        return batch


def refuse(call: Call, error: TubeError, *, loudly: bool) -> bytes:
    """The answer to a message that was not taken.

    Args:
        loudly: answer with an exception, because the client takes any reply for a success.
    """
    if loudly:
        name = rpc.refusal_name(error, call.protocol_version)
        return rpc.encode_refusal(call.serial, call.protocol_version, False, name, brief(error))
    body = SendMessageResponseB2P(
        success=False, errCode=error.code, errMsg=brief(error), requireAuth=False
    )
    return rpc.encode_reply(
        call.serial, Method.SEND_MESSAGE, call.protocol_version, body.SerializeToString()
    )


def refuse_call(call: Call, error: TubeError) -> bytes:
    """``refuse`` for a message whose sender must be looked up in the request first."""
    try:
        client_id = SendMessageRequestP2B.FromString(call.body).clientId
    except DecodeError:
        client_id = ""
    return refuse(call, error, loudly=_ignores_failures(client_id))


def _parse(body: bytes) -> SendMessageRequestP2B:
    """``rpc.parse`` without what a send does not need: the texts are checked where they are used."""
    try:
        request = SendMessageRequestP2B.FromString(body)
    except DecodeError as error:
        raise WireError(f"SendMessageRequestP2B is not protobuf: {error}") from error
    if not request.IsInitialized():
        return rpc.parse(SendMessageRequestP2B, body)  # names what is missing
    return request


def _check(
    request: SendMessageRequestP2B, data: bytes, check_sum: int, topic: TopicSettings
) -> None:
    if not data:
        raise BadRequestError("the message is empty")
    if len(data) > topic.payload_bytes_max:
        raise BadRequestError(
            f"the message has {len(data)} bytes, topic {topic.name!r} takes {topic.message_bytes_max}"
        )
    if request.checkSum not in (NOT_COMPUTED, check_sum):
        raise ForbiddenError(f"checksum {request.checkSum} is not the data's, {check_sum}")
    if request.flag & payloads.HAS_ATTRIBUTES:
        try:
            payloads.value_start(data, request.flag)
        except WireError as error:
            raise BadRequestError(str(error)) from error
    kind = request.msgType
    if len(kind) > FILTER_BYTES_MAX or type(kind) is not str:
        raise BadRequestError(
            f"message type of {len(kind)} characters, the limit is {FILTER_BYTES_MAX}"
        )


def _ignores_failures(client_id: str | bytes) -> bool:
    """Whether this is a C++ client: it reports a failure answer as success (spec section 3.6).

    Protobuf gives text that is not UTF-8 as bytes; no C++ client sends that.
    """
    return type(client_id) is str and client_id.startswith("PRODUCER_") and "-C-" in client_id


def _answer(batch: Batch, result: Result) -> None:
    """Tell all senders of the batch how it ended, in one write."""
    sending = batch.context
    assert isinstance(sending, Sending)
    connection = sending.connection
    connection.end(batch.count, sending.byte_count)
    if connection.closed:
        return
    if result.error is not None:
        calls = zip(sending.serials, sending.versions, strict=True)
        connection.write(
            b"".join(
                refuse(Call(serial, 0, version, 0, b""), result.error, loudly=sending.fails_loudly)
                for serial, version in calls
            )
        )
        return
    connection.write(
        encode_receipt_frames(
            sending.serials,
            sending.versions,
            sending.message_ids,
            result.base_offset,
            result.append_time_ms,
            durable=batch.durable,
        )
    )

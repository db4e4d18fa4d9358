"""The envelope of TubeMQ's calls inside a frame's payload.

Three protobuf messages, each preceded by its length as a varint::

    call     RpcConnHeader  RequestHeader   RequestBody(method, timeout, request)
    reply    RpcConnHeader  ResponseHeader  RspResponseBody(method, data)
    refusal  RpcConnHeader  ResponseHeader  RspExceptionBody(exceptionName, stackTrace)

The forms that real peers write are recognised by one regular expression each, because every message
passes here; anything else that is legal goes through protobuf.

Source: spec sections 1.3 and 1.4 (RpcConstants.java, MixUtils.java, captures of all three clients).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tube.errors import (
    BadRequestError,
    CertificateError,
    ConflictError,
    ContentForbiddenError,
    DuplicateHolderError,
    ForbiddenError,
    GroupForbiddenError,
    InconsistentGroupError,
    NotFoundError,
    NotOwnerError,
    NotRegisteredError,
    OutcomeUnknownError,
    PartitionOccupiedError,
    ReceiveOverflowError,
    RefusedError,
    SpeedLimitError,
    StandbyError,
    StoppingError,
    TopicNotDeployedError,
    TubeError,
    UnavailableError,
    UnknownMethodError,
    WireError,
)
from tube.limits import BLOCK_BYTES_MAX
from tube.pb import RPC_pb2
from tube.wire import frame, varint
from tube.wire.frame import Frame

PROTOCOL_VERSION = 3
"""What Java 2.x sends; 1 and 2 are older name spaces of exceptions, C++ and Go send 2."""


class Method(IntEnum):
    """What a call asks for; 64 and up are ours."""

    REGISTER_PRODUCER = 1
    HEARTBEAT_PRODUCER = 2
    CLOSE_PRODUCER = 3
    REGISTER_CONSUMER = 4
    HEARTBEAT_CONSUMER = 5
    CLOSE_CONSUMER = 6
    REGISTER_BROKER = 7
    HEARTBEAT_BROKER = 8
    CLOSE_BROKER = 9
    SEND_MESSAGE = 13
    REGISTER_PARTITION = 15
    HEARTBEAT_PARTITIONS = 16
    GET_MESSAGE = 17
    COMMIT_OFFSET = 18
    REGISTER_CONSUMER_V2 = 20
    HEARTBEAT_CONSUMER_V2 = 21
    GET_PARTITION_META = 22
    SEND_BATCH = 64
    FETCH = 65
    LIST_OFFSETS = 66
    DESCRIBE = 67


class Service(IntEnum):
    """RequestHeader.serviceType; servers ignore it (Go sends messages to the read service)."""

    MASTER = 1
    READ = 2
    WRITE = 3


class Call(NamedTuple):
    """A request.  ``method`` may be an id that no ``Method`` has; ``timeout_ms`` is 0 if absent."""

    serial: int
    method: int
    protocol_version: int
    timeout_ms: int
    body: bytes


class Reply(NamedTuple):
    """A successful answer; whether the service said yes is in the body."""

    serial: int
    method: int
    body: bytes


class Refusal(NamedTuple):
    """An exception answer; ``fatal`` when the call could not even be dispatched."""

    serial: int
    fatal: bool
    exception_name: str
    text: str


class MalformedCallError(WireError):
    """The frame is whole, but what it carries is not a call.  ``serial`` can be answered."""

    def __init__(self, message: str, *, serial: int) -> None:
        super().__init__(message)
        self.serial = serial


# One varint of at most 28 bits (4 bytes); longer ones take the slow path.
_SHORT = rb"([\x80-\xff]{0,3}[\x00-\x7f])"
_CALL = re.compile(
    rb"\x02\x08[\x00-\x7f]"  # RpcConnHeader: flag
    rb"\x04\x08[\x00-\x7f]\x10([\x00-\x7f])"  # RequestHeader: serviceType, protocolVer
    + _SHORT  # length of RequestBody
    + rb"\x08([\x00-\x7f])\x10"
    + _SHORT
    + rb"\x1a"
    + _SHORT  # method, timeout, length of request
)
_REPLY = re.compile(
    rb"\x02\x08[\x00-\x7f]"  # RpcConnHeader: flag
    rb"(?:\x04\x08\x00\x18[\x00-\x7f]|\x02\x08\x00)"  # ResponseHeader: status, protocolVer
    + _SHORT  # length of RspResponseBody
    + rb"\x08([\x00-\x7f])\x12"
    + _SHORT  # method, length of data
)

_SERVICES = {
    Method.SEND_MESSAGE: Service.WRITE,
    Method.SEND_BATCH: Service.WRITE,
    Method.REGISTER_PARTITION: Service.READ,
    Method.HEARTBEAT_PARTITIONS: Service.READ,
    Method.GET_MESSAGE: Service.READ,
    Method.COMMIT_OFFSET: Service.READ,
    Method.FETCH: Service.READ,
    Method.LIST_OFFSETS: Service.READ,
    Method.DESCRIBE: Service.READ,
}

M = TypeVar("M", bound=Message)


def decode_call(frame: Frame) -> Call:
    """Return the call in ``frame``; flag, service type and bytes after the call do not matter.

    Raises:
        MalformedCallError: the envelope is broken or lacks a required field.
    """
    payload = frame.payload
    match = _CALL.match(payload)
    if match is not None:
        version, body_length, method, timeout_ms, length = match.groups()
        start = match.end()
        stop = start + _short(length)
        if stop == match.end(2) + _short(body_length) and stop <= len(payload):
            return Call(
                frame.serial, method[0], version[0], _short(timeout_ms), payload[start:stop]
            )
    try:
        _, at = _next(RPC_pb2.RpcConnHeader, payload, 0)
        header, at = _next(RPC_pb2.RequestHeader, payload, at)
        body, _ = _next(RPC_pb2.RequestBody, payload, at)
    except WireError as error:
        raise MalformedCallError(str(error), serial=frame.serial) from error
    return Call(frame.serial, body.method, header.protocolVer, body.timeout, body.request)


def peek_method(prefix: bytes) -> int | None:
    """Return the method of the call whose payload begins with ``prefix``, None if it cannot be told.

    For limits that depend on the method; ``frame.PREFIX_BYTES`` are enough for all real peers.
    """
    at = 0
    try:
        for _ in range(2):  # RpcConnHeader and RequestHeader
            length, at = varint.decode(prefix, at)
            at += length
        _, at = varint.decode(prefix, at)
        return varint.decode(prefix, at + 1)[0] if prefix[at : at + 1] == b"\x08" else None
    except WireError:
        return None


def decode_reply(frame: Frame) -> Reply | Refusal:
    """Return the answer in ``frame``.

    Raises:
        WireError: the envelope is broken, lacks a required field, or its status is unknown.
    """
    payload = frame.payload
    match = _REPLY.match(payload)
    if match is not None:
        body_length, method, length = match.groups()
        start = match.end()
        stop = start + _short(length)
        if stop == match.end(1) + _short(body_length) and stop <= len(payload):
            return Reply(frame.serial, method[0], payload[start:stop])
    _, at = _next(RPC_pb2.RpcConnHeader, payload, 0)
    header, at = _next(RPC_pb2.ResponseHeader, payload, at)
    if header.status == RPC_pb2.SUCCESS:
        body, _ = _next(RPC_pb2.RspResponseBody, payload, at)
        return Reply(frame.serial, body.method, body.data)
    refusal, _ = _next(RPC_pb2.RspExceptionBody, payload, at)
    fatal = header.status == RPC_pb2.FATAL
    return Refusal(frame.serial, fatal, refusal.exceptionName, refusal.stackTrace)


def encode_call(
    serial: int, method: int, body: bytes, timeout_ms: int, service: int | None = None
) -> bytes:
    """Return the frame of a call.

    Args:
        timeout_ms: at least 1; a Java server drops calls without a timeout silently.
        service: None picks the one that offers ``method``.
    """
    if service is None:
        service = _SERVICES.get(method, Service.MASTER)  # type: ignore[call-overload]  # any int
    inner = b"\x08%b\x10%b\x1a%b" % (
        varint.encode(method),
        varint.encode(timeout_ms),
        varint.encode(len(body)),
    )
    outer = varint.encode(len(inner) + len(body))
    head = b"\x02\x08\x00\x04\x08%c\x10%c%b" % (service, PROTOCOL_VERSION, outer)
    return frame.encode(serial, head + inner + body)


def encode_reply(serial: int, method: int, protocol_version: int, body: bytes) -> bytes:
    """Return the frame of a successful answer, cut for original clients.

    Raises:
        FrameTooLargeError: the body is longer than any frame.
    """
    prefix = _reply_prefix(method, protocol_version, len(body))
    return frame.encode(serial, prefix + body)


def encode_reply_parts(
    serial: int,
    method: int,
    protocol_version: int,
    parts: Sequence[bytes | memoryview],
    block_bytes: int | None = BLOCK_BYTES_MAX,
) -> list[bytes | memoryview]:
    """Return the pieces of the frame of an answer whose body is the joined ``parts``, not copied.

    Raises:
        FrameTooLargeError: the body is longer than any frame.
    """
    prefix = _reply_prefix(method, protocol_version, sum(map(len, parts)))
    return frame.encode_parts(serial, [prefix, *parts], block_bytes)


def encode_refusal(
    serial: int, protocol_version: int | None, fatal: bool, exception_name: str, text: str
) -> bytes:
    """Return the frame of an exception answer.

    Args:
        protocol_version: of the request; None leaves it out, as original servers do when fatal.
        text: ``#`` is taken out, since Java splits name and text there.
    """
    status = RPC_pb2.FATAL if fatal else RPC_pb2.ERROR
    header = RPC_pb2.ResponseHeader(status=status, protocolVer=protocol_version)
    body = RPC_pb2.RspExceptionBody(exceptionName=exception_name, stackTrace=text.replace("#", ""))
    payload = bytearray(b"\x02\x08\x01")
    for part in (header.SerializeToString(), body.SerializeToString()):
        payload += varint.encode(len(part)) + part
    return frame.encode(serial, bytes(payload))


_PREFIXES = {1: "com.tencent.tubemq.", 2: "com.apache.tubemq."}
_PREFIX_NOW = "org.apache.inlong.tubemq."

_EXCEPTIONS: list[tuple[type[TubeError], str]] = [  # subclasses before their parents
    (StandbyError, "corerpc.exception.StandbyException"),
    (StoppingError, "corerpc.exception.ServiceStoppingException"),
    (UnavailableError, "corerpc.exception.ServerNotReadyException"),
    (UnknownMethodError, "java.lang.Exception"),
    (WireError, "com.google.protobuf.InvalidProtocolBufferException"),
    (TubeError, "corerpc.exception.RemoteException"),
]

_REFUSED: dict[int, type[TubeError]] = {
    400: BadRequestError,
    401: NotOwnerError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: PartitionOccupiedError,
    411: NotRegisteredError,
    412: DuplicateHolderError,
    415: CertificateError,
    419: ReceiveOverflowError,
    422: ForbiddenError,  # partition does not accept consumers
    423: ForbiddenError,  # partition does not accept messages
    431: TopicNotDeployedError,
    450: GroupForbiddenError,
    455: ContentForbiddenError,
    500: OutcomeUnknownError,  # the original tells to retry; a message may be stored already
    503: UnavailableError,
    510: OutcomeUnknownError,
}
_INCONSISTENT = range(424, 431)
_SPEED_LIMIT = 452


def refusal_name(error: TubeError, protocol_version: int | None) -> str:
    """Return the Java class that a client of ``protocol_version`` knows for ``error``.

    Java instantiates it by name, so prefix and spelling are part of the contract; an IOException
    among them makes it try the next master.
    """
    name = next(name for kind, name in _EXCEPTIONS if isinstance(error, kind))
    if not name.startswith("corerpc."):
        return name
    return _PREFIXES.get(protocol_version or PROTOCOL_VERSION, _PREFIX_NOW) + name


def error_of(refusal: Refusal) -> TubeError:
    """Return our error for an exception answer, whatever prefix its class has."""
    name, text = refusal.exception_name, refusal.text
    if "StandbyException" in name:  # the word that C++ looks for
        return StandbyError(text)
    if "ServiceStoppingException" in name:
        return StoppingError(text)
    if "ServerNotReadyException" in name:
        return UnavailableError(text)
    if "Unsupported method" in text:
        return UnknownMethodError(text)
    if refusal.fatal:  # not dispatched, so nothing has happened
        return BadRequestError(f"{name}: {text}")
    return OutcomeUnknownError(f"{name}: {text}")


def error_from_code(code: int, text: str) -> TubeError:
    """Return our error for the ``errCode`` of a failed answer.

    The wait of a speed limit is not in the code: it is 0 here, and in ``minLimitTime`` of the
    answer.  A code without a class of its own is named in the message.
    """
    if code in _INCONSISTENT:
        return InconsistentGroupError(code, text)
    if code == _SPEED_LIMIT:
        return SpeedLimitError(text, wait_ms=0)
    if code in _REFUSED:
        return _REFUSED[code](text)
    kind = RefusedError if 400 <= code < 500 else TubeError
    return kind(f"code {code}: {text}")


def code_of(error: BaseException) -> int:
    """Return the ``errCode`` of a failed answer; 500 for what was not raised on purpose."""
    return error.code if isinstance(error, TubeError) else TubeError.code


def parse(message_class: type[M], body: bytes, *, check_text: bool = True) -> M:
    """Return the message in ``body``.

    Protobuf itself accepts missing required fields, and gives text that is not UTF-8 as ``bytes``.

    Args:
        check_text: False saves a third of the time for a caller that copes with such ``bytes``,
            for instance because it looks the text up among names that it knows.

    Raises:
        WireError: not protobuf, required fields are missing (it names them), or a string is not
            UTF-8.
    """
    try:
        message = message_class.FromString(body)
    except DecodeError as error:
        raise WireError(f"{message_class.DESCRIPTOR.name} is not protobuf: {error}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise WireError(f"{message_class.DESCRIPTOR.name} lacks required fields: {missing}")
    if check_text:
        _check_text(message)
    return message


@functools.lru_cache(maxsize=4096)  # lengths and timeouts repeat
def _short(encoded: bytes) -> int:
    """Value of a varint of at most four bytes."""
    value = encoded[0]
    if value < 128:
        return value
    value = value & 127 | (encoded[1] & 127) << 7
    if len(encoded) > 2:
        value |= (encoded[2] & 127) << 14
        if len(encoded) > 3:
            value |= encoded[3] << 21
    return value


@functools.lru_cache(maxsize=64)  # the version comes from the peer, so the cache is bounded
def _reply_start(method: int, protocol_version: int) -> tuple[bytes, bytes]:
    """What stands before and after the length of RspResponseBody."""
    header = b"\x08\x00\x18" + varint.encode(protocol_version)
    return b"\x02\x08\x01" + varint.encode(len(header)) + header, b"\x08" + varint.encode(
        method
    ) + b"\x12"


def _reply_prefix(method: int, protocol_version: int, body_bytes: int) -> bytes:
    before, after = _reply_start(method, protocol_version)
    length = varint.encode(body_bytes)
    return before + varint.encode(len(after) + len(length) + body_bytes) + after + length


def _next(message_class: type[M], payload: bytes, at: int) -> tuple[M, int]:
    """Return the message that starts at ``at`` with its length, and where the next one starts."""
    length, at = varint.decode(payload, at)
    if length > len(payload) - at:
        left = len(payload) - at
        raise WireError(f"{message_class.DESCRIPTOR.name} has {length} bytes, {left} are left")
    return parse(message_class, payload[at : at + length]), at + length


class _Texts(NamedTuple):
    """Where a message class keeps text; paths go through single inner messages."""

    names: list[str]
    values: Callable[[Message], tuple[object, ...]]  # of names, all in one call
    lists: list[str]
    message_lists: list[str]


_TEXTS: dict[type[Message], _Texts] = {}  # one entry per message class that was parsed


def _texts(message_class: type[Message]) -> _Texts:
    names, lists, message_lists = list[str](), list[str](), list[str]()
    pending: list[tuple[str, Message]] = [("", message_class())]
    while pending:
        prefix, message = pending.pop()
        for field in message.DESCRIPTOR.fields:
            path, repeated = prefix + field.name, not field.has_presence  # true of proto2
            if field.type == FieldDescriptor.TYPE_STRING:
                (lists if repeated else names).append(path)
            elif field.type == FieldDescriptor.TYPE_MESSAGE and repeated:
                message_lists.append(path)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.append((path + ".", getattr(message, field.name)))
    get = attrgetter(*names, names[0]) if names else lambda _: ()  # one name would give no tuple
    return _TEXTS.setdefault(message_class, _Texts(names, get, lists, message_lists))


def _check_text(message: Message) -> None:
    """Refuse strings that are not UTF-8: protobuf's C parser gives those as ``bytes``."""
    names, values, lists, message_lists = _TEXTS.get(type(message)) or _texts(type(message))
    if bytes in map(type, values(message)):
        broken = [name for name in names if type(attrgetter(name)(message)) is bytes]
        raise WireError(f"{message.DESCRIPTOR.name}: {', '.join(broken)} is not UTF-8")
    for name in lists:
        if bytes in map(type, attrgetter(name)(message)):
            raise WireError(f"{message.DESCRIPTOR.name}: {name} is not UTF-8")
    for name in message_lists:
        for inner in attrgetter(name)(message):
            _check_text(inner)

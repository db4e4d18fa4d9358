"""Calls, replies and refusals: golden bytes, any order of fields, hostile bytes, and the errors."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import VECTORS, named, raw
from tube import errors
from tube.errors import (
    BadRequestError,
    InconsistentGroupError,
    OutcomeUnknownError,
    RefusedError,
    SpeedLimitError,
    StandbyError,
    StoppingError,
    TubeError,
    UnavailableError,
    UnknownMethodError,
    WireError,
)
from tube.limits import BLOCK_BYTES_MAX
from tube.pb import (
    BrokerService_pb2,
    MasterService_pb2,
    RPC_pb2,
    TubeExtensions_pb2,
)
from tube.wire import rpc
from tube.wire.frame import PREFIX_BYTES, Frame, FrameDecoder
from tube.wire.rpc import Call, MalformedCallError, Method, Refusal, Reply

REQUESTS = [v for v in VECTORS if v["kind"] == "request"]
OURS = [v for v in REQUESTS if not v["name"].endswith(("_multiblock", "_trailing_zeros"))]
RESPONSES = [v for v in VECTORS if v["kind"] == "response"]
EXCEPTIONS = [v for v in VECTORS if v["kind"] == "exception"]
MODULES = [RPC_pb2, MasterService_pb2, BrokerService_pb2, TubeExtensions_pb2]
int32s = st.integers(-(2**31), 2**31 - 1)
bodies = st.binary(max_size=40) | st.integers(100, 20_000).map(bytes)


def frame_of(vector) -> Frame:
    (frame,) = FrameDecoder().feed(raw(vector))
    return frame


def framed(*messages, serial: int = 9, tail: bytes = b"") -> Frame:
    """An envelope written by protobuf alone."""
    payload = b""
    for message in messages:
        encoded = message.SerializePartialToString()
        length, number = b"", len(encoded)
        while number > 127:
            length, number = length + bytes([number & 127 | 128]), number >> 7
        payload += length + bytes([number]) + encoded
    return Frame(serial, payload + tail)


def only(stream: bytes) -> Frame:
    (frame,) = FrameDecoder().feed(stream)
    return frame


def check_fields(message, expected) -> None:
    """The golden fields are all there, and no others."""
    assert {field.name for field, _ in message.ListFields()} == set(expected)
    for name, value in expected.items():
        got = getattr(message, name)
        if isinstance(value, dict) and "hex" not in value:
            check_fields(got, value)
        elif isinstance(value, list):
            assert len(got) == len(value)
            for inner, wanted in zip(got, value, strict=True):
                if isinstance(wanted, dict):
                    check_fields(inner, wanted)
                else:
                    assert inner == wanted
        elif isinstance(got, bytes):
            assert got.hex() in str(value)
        else:
            assert got == value


def golden_message(vector, body: bytes):
    name = vector["decoded"]["message"]
    descriptor = Default().FindMessageTypeByName(name)
    return rpc.parse(GetMessageClass(descriptor), body)


@pytest.mark.parametrize("vector", REQUESTS, ids=lambda v: v["name"])
def test_golden_calls_are_read(vector):
    """Every request gives its method, version, timeout and message; the tail does not matter."""
    decoded = vector["decoded"]
    call = rpc.decode_call(frame_of(vector))

    assert call.serial == vector["serialNo"]
    assert call.method == decoded["RequestBody"]["method"]
    assert call.timeout_ms == decoded["RequestBody"]["timeout"]
    assert call.protocol_version == decoded["RequestHeader"]["protocolVer"]
    message = golden_message(vector, call.body)
    check_fields(message, decoded["fields"])
    assert message.SerializeToString() == call.body


@pytest.mark.parametrize("vector", OURS, ids=lambda v: v["name"])
def test_golden_calls_are_written(vector):
    """What Java writes, we write, apart from blocks and tails of other clients."""
    call = rpc.decode_call(frame_of(vector))

    assert rpc.encode_call(call.serial, call.method, call.body, call.timeout_ms) == raw(vector)


@pytest.mark.parametrize("vector", RESPONSES, ids=lambda v: v["name"])
def test_golden_replies_are_read_and_written(vector):
    """Every response gives its message, and the message gives the response."""
    reply = rpc.decode_reply(frame_of(vector))
    version = vector["decoded"]["ResponseHeader"]["protocolVer"]

    assert isinstance(reply, Reply)
    message = golden_message(vector, reply.body)
    check_fields(message, vector["decoded"]["fields"])
    assert message.SerializeToString() == reply.body
    assert rpc.encode_reply(reply.serial, reply.method, version, reply.body) == raw(vector)


@pytest.mark.parametrize("vector", EXCEPTIONS, ids=lambda v: v["name"])
def test_golden_refusals_are_read_and_written(vector):
    """Exceptions of both kinds, with and without a version."""
    refusal = rpc.decode_reply(frame_of(vector))
    version = vector["decoded"]["ResponseHeader"].get("protocolVer")

    assert isinstance(refusal, Refusal)
    encoded = rpc.encode_refusal(
        refusal.serial, version, refusal.fatal, refusal.exception_name, refusal.text
    )
    assert encoded == raw(vector)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1), bodies, st.integers(0, 2**62))
def test_calls_come_back(serial, method, body, timeout_ms):
    """Whatever is called with whatever timeout, the server reads the same."""
    frame = only(rpc.encode_call(serial, method, body, timeout_ms))
    assert rpc.decode_call(frame) == Call(serial, method, 3, timeout_ms, body)
    assert rpc.peek_method(frame.payload[:PREFIX_BYTES]) == method


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1), int32s, bodies)
def test_replies_come_back(serial, method, version, body):
    """Whole or in parts, the client reads the same."""
    encoded = rpc.encode_reply(serial, method, version, body)
    parts = [memoryview(body)[:3], memoryview(body)[3:]]
    pieces = rpc.encode_reply_parts(serial, method, version, parts, BLOCK_BYTES_MAX)

    assert rpc.decode_reply(only(encoded)) == Reply(serial, method, body)
    assert b"".join(pieces) == encoded
    in_one = b"".join(rpc.encode_reply_parts(serial, method, version, parts, None))
    assert only(in_one) == only(encoded)


@pytest.mark.parametrize("size", [0, 1, 120, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_of_every_size_are_read(size):
    """One to four bytes of length, on the quick way and around it."""
    body = bytes(size)
    assert rpc.decode_call(only(rpc.encode_call(1, 13, body, size))).body == body
    reply = only(rpc.encode_reply(1, 13, 3, body))
    assert rpc.decode_reply(reply) == Reply(1, 13, body)
    with pytest.raises(WireError):
        rpc.decode_reply(Frame(1, reply.payload[:-1]))


@given(int32s, st.none() | int32s, st.none() | int32s, int32s, bodies, st.binary(max_size=9))
def test_any_legal_call_is_read(flag, service, version, method, body, tail):
    """Flag, service and what follows do not matter; absent fields are zero."""
    frame = framed(
        RPC_pb2.RpcConnHeader(flag=flag, traceId=5),
        RPC_pb2.RequestHeader(serviceType=service, protocolVer=version),
        RPC_pb2.RequestBody(method=method, request=body),
        tail=tail,
    )
    assert rpc.decode_call(frame) == Call(9, method, version or 0, 0, body)


def test_a_call_in_another_order_is_read():
    """Fields may come in any order and more than once; the last one counts."""
    body = RPC_pb2.RequestBody(method=13, timeout=5, request=b"abc").SerializeToString()
    payload = b"\x02\x08\x0a" + b"\x04\x08\x02\x10\x02" + bytes([len(body) + 5]) + body
    frame = Frame(1, payload + b"\x1a\x03xyz" + b"\0" * 8)
    assert rpc.decode_call(frame) == Call(1, 13, 2, 5, b"xyz")


@given(bodies, int32s)
def test_any_legal_reply_is_read(body, method):
    """Replies with a service type and unknown tails."""
    header = RPC_pb2.ResponseHeader(status=RPC_pb2.SUCCESS, serviceType=2, protocolVer=2)
    answer = RPC_pb2.RspResponseBody(method=method, data=body)
    frame = framed(RPC_pb2.RpcConnHeader(flag=1), header, answer, tail=b"\0")
    assert rpc.decode_reply(frame) == Reply(9, method, body)


@given(st.binary(max_size=120))
def test_random_payloads_are_calls_or_refused(payload):
    """Nothing but WireError; a malformed call can still be answered by its serial."""
    with contextlib.suppress(MalformedCallError):
        rpc.decode_call(Frame(5, payload))
    with contextlib.suppress(WireError):
        rpc.decode_reply(Frame(5, payload))
    rpc.peek_method(payload)


@given(st.sampled_from(VECTORS), st.data())
def test_mutated_payloads_are_read_or_refused(vector, data):
    """Envelopes and messages with a few wrong bytes never raise anything but WireError."""
    payload = bytearray.fromhex(vector["payload_hex"])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    frame = Frame(5, bytes(payload))
    with contextlib.suppress(WireError):
        if vector["kind"] == "request":
            golden_message(vector, rpc.decode_call(frame).body)
        elif isinstance(reply := rpc.decode_reply(frame), Reply) and vector["kind"] == "response":
            golden_message(vector, reply.body)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "varint at byte 0"),
        (b"\x05\x08\x00", "RpcConnHeader has 5 bytes, 2 are left"),
        (b"\x00\x00\x00", "RpcConnHeader lacks required fields: flag"),
        (b"\x02\x08\x00\x00\x02\x10\x05", "RequestBody lacks required fields: method"),
        (b"\x02\x08\x00\x01\x07\x02\x08\x01", "RequestHeader is not protobuf"),
    ],
)
def test_broken_envelopes_name_what_is_wrong(payload, text):
    """The text goes back to the peer, so it says which field."""
    with pytest.raises(MalformedCallError, match=text) as caught:
        rpc.decode_call(Frame(1, payload))
    assert caught.value.serial == 1


def test_an_unknown_status_is_refused():
    """A header whose status is not one of three lacks it, as protobuf sees it."""
    with pytest.raises(WireError, match="ResponseHeader lacks required fields: status"):
        rpc.decode_reply(Frame(1, b"\x02\x08\x01\x02\x08\x07\x00"))


@pytest.mark.parametrize(
    "prefix", [b"", b"\x02\x08", b"\x02\x08\x00\x04\x08\x03\x10\x03", b"\xff" * 9]
)
def test_a_method_that_is_not_there_yet_cannot_be_told(prefix):
    """None instead of a guess."""
    assert rpc.peek_method(prefix) is None
    assert rpc.peek_method(b"\x02\x08\x00\x00\x04\x10\x05\x08\x0d") is None


def test_services_follow_the_method():
    """Java's service numbers; a caller may choose another."""

    def service(method: int, **more: int) -> int:
        return rpc.encode_call(1, method, b"", 10, **more)[16 + 3 + 2]

    assert service(Method.SEND_MESSAGE) == 3
    assert service(Method.GET_MESSAGE) == 2
    assert service(Method.REGISTER_BROKER) == service(99) == 1
    assert service(Method.SEND_MESSAGE, service=2) == 2


def test_parse_names_missing_fields_and_bad_text():
    """Required fields are demanded, text must be text, wherever it stands."""
    pb = BrokerService_pb2
    with pytest.raises(WireError, match="CommitOffsetRequestC2B lacks required fields: clientId"):
        rpc.parse(pb.CommitOffsetRequestC2B, b"")
    with pytest.raises(WireError, match="is not protobuf"):
        rpc.parse(pb.CommitOffsetRequestC2B, b"\x0a")
    bad = b"\x0a\x02\xff\xfe\x12\x00\x18\x00\x22\x00"
    with pytest.raises(WireError, match="CommitOffsetRequestC2B: clientId is not UTF-8"):
        rpc.parse(pb.CommitOffsetRequestC2B, bad)
    assert rpc.parse(pb.CommitOffsetRequestC2B, bad, check_text=False).clientId == b"\xff\xfe"
    assert not rpc.parse(pb.Span, b"").HasField("count")


def test_bad_text_is_found_in_inner_and_repeated_fields():
    """Lists of texts, single messages and lists of messages are looked through."""
    ms = MasterService_pb2
    listed = ms.EventProto().SerializeToString() + b"\x22\x01\xff"
    with pytest.raises(WireError, match="EventProto: subscribeInfo is not UTF-8"):
        rpc.parse(ms.EventProto, listed)
    token = ms.MasterCertificateInfo().SerializeToString() + b"\x12\x01\xff"
    inner = b"\x0a\x01c" + b"\x12" + bytes([len(token)]) + token
    with pytest.raises(WireError, match="CloseRequestP2M: authInfo\\.authorizedToken is not UTF-8"):
        rpc.parse(ms.CloseRequestP2M, inner)
    state = b"\x0a\x01\xff"
    answer = TubeExtensions_pb2.DescribeResponseB2C(success=True, errCode=200, errMsg="")
    with pytest.raises(WireError, match="TopicState: topicName is not UTF-8"):
        rpc.parse(type(answer), answer.SerializeToString() + b"\x2a\x03" + state)


def all_errors(kind: type[TubeError] = TubeError) -> list[type[TubeError]]:
    return [kind, *(e for inner in kind.__subclasses__() for e in all_errors(inner))]


@pytest.mark.parametrize("kind", [e for e in all_errors() if e.__module__ == errors.__name__])
def test_every_error_has_a_name_and_a_code(kind):
    """Each class, or an ancestor, is an exception and an errCode on the wire."""
    error = kind.__new__(kind)
    assert rpc.refusal_name(error, 3)
    assert 200 < rpc.code_of(error) < 600


def test_exceptions_have_the_names_that_java_knows():
    """Prefix by version, exact class names."""
    name = rpc.refusal_name
    standby = "corerpc.exception.StandbyException"
    assert name(StandbyError(), 1) == f"com.tencent.tubemq.{standby}"
    assert name(StandbyError(), 2) == f"com.apache.tubemq.{standby}"
    for version in (3, 77, None):
        assert name(StandbyError(), version) == f"org.apache.inlong.tubemq.{standby}"
    assert name(StoppingError(), 3).endswith("corerpc.exception.ServiceStoppingException")
    assert name(UnavailableError(), 3).endswith("corerpc.exception.ServerNotReadyException")
    assert name(UnknownMethodError(), 3) == "java.lang.Exception"
    malformed = MalformedCallError("x", serial=1)
    assert name(malformed, 3) == "com.google.protobuf.InvalidProtocolBufferException"
    assert name(RefusedError(), 3).endswith("corerpc.exception.RemoteException")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("error", [StandbyError("s"), StoppingError("t"), UnavailableError("u")])
def test_refusals_come_back_as_their_errors(error, version):
    """A client of ours sees the error that the server raised."""
    name = rpc.refusal_name(error, version)
    refusal = rpc.decode_reply(only(rpc.encode_refusal(1, version, False, name, str(error))))
    got = rpc.error_of(refusal)

    assert (type(got), str(got)) == (type(error), str(error))


def test_other_refusals_say_whether_something_may_have_happened():
    """Not dispatched: nothing did.  An exception in the middle: nobody knows."""
    golden = rpc.decode_reply(frame_of(named("fatal_exception_response")))
    assert isinstance(rpc.error_of(golden), UnknownMethodError)
    assert isinstance(rpc.error_of(Refusal(1, True, "x.InvalidProtocol", "t")), BadRequestError)
    assert isinstance(rpc.error_of(Refusal(1, False, "x.Remote", "t")), OutcomeUnknownError)


def test_a_hash_sign_is_taken_out_of_the_text():
    """Java would lose everything behind it."""
    refusal = rpc.decode_reply(only(rpc.encode_refusal(1, 3, False, "x", "topic#1: #no")))
    assert refusal == Refusal(1, False, "x", "topic1: no")


def test_codes_become_the_errors_that_have_them():
    """A code leads to an error that leads to the same code, where there is one."""
    for code in (400, 401, 403, 404, 409, 410, 411, 412, 415, 419, 431, 450, 452, 455, 500, 503):
        error = rpc.error_from_code(code, "text")
        assert (rpc.code_of(error), str(error)) == (code, "text")
    for code in range(424, 431):
        error = rpc.error_from_code(code, "text")
        assert isinstance(error, InconsistentGroupError)
        assert rpc.code_of(error) == code
    limited = rpc.error_from_code(452, "slow")
    assert isinstance(limited, SpeedLimitError)
    assert limited.wait_ms == 0


def test_codes_without_a_class_are_named_in_the_text():
    """Refusals of the 400s are refusals; nothing is lost."""
    refused, odd = rpc.error_from_code(444, "x"), rpc.error_from_code(599, "y")
    assert (type(refused), str(refused)) == (RefusedError, "code 444: x")
    assert (type(odd), str(odd)) == (TubeError, "code 599: y")
    assert rpc.code_of(ValueError()) == 500


def test_every_message_has_its_text_checked():
    """The table of text fields can be built for every message that we know."""
    names = [name for module in MODULES for name in module.DESCRIPTOR.message_types_by_name]
    assert len(names) == len(set(names)) > 80
    for module in MODULES:
        for name in module.DESCRIPTOR.message_types_by_name:
            message_class = getattr(module, name)
            message = message_class()
            with contextlib.suppress(WireError):  # required fields are missing
                rpc.parse(message_class, message.SerializePartialToString())
            assert rpc._texts(message_class).names is not None

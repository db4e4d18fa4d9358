from tube.pb import BrokerService_pb2 as _BrokerService_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SendBatchRequestP2B(_message.Message):
    __slots__ = ("clientId", "topicName", "partitionId", "messages", "count", "checkSum", "filterBits", "maxTimeMs", "authInfo", "producerId", "producerEpoch", "sequence")
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FILTERBITS_FIELD_NUMBER: _ClassVar[int]
    MAXTIMEMS_FIELD_NUMBER: _ClassVar[int]
    AUTHINFO_FIELD_NUMBER: _ClassVar[int]
    PRODUCERID_FIELD_NUMBER: _ClassVar[int]
    PRODUCEREPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    clientId: str
    topicName: str
    partitionId: int
    messages: bytes
    count: int
    checkSum: int
    filterBits: int
    maxTimeMs: int
    authInfo: _BrokerService_pb2.AuthorizedInfo
    producerId: int
    producerEpoch: int
    sequence: int
    def __init__(self, clientId: _Optional[str] = ..., topicName: _Optional[str] = ..., partitionId: _Optional[int] = ..., messages: _Optional[bytes] = ..., count: _Optional[int] = ..., checkSum: _Optional[int] = ..., filterBits: _Optional[int] = ..., maxTimeMs: _Optional[int] = ..., authInfo: _Optional[_Union[_BrokerService_pb2.AuthorizedInfo, _Mapping]] = ..., producerId: _Optional[int] = ..., producerEpoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class SendBatchResponseB2P(_message.Message):
    __slots__ = ("success", "errCode", "errMsg", "baseOffset", "appendTime", "durable", "duplicate")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERRCODE_FIELD_NUMBER: _ClassVar[int]
    ERRMSG_FIELD_NUMBER: _ClassVar[int]
    BASEOFFSET_FIELD_NUMBER: _ClassVar[int]
    APPENDTIME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    errCode: int
    errMsg: str
    baseOffset: int
    appendTime: int
    durable: bool
    duplicate: bool
    def __init__(self, success: bool = ..., errCode: _Optional[int] = ..., errMsg: _Optional[str] = ..., baseOffset: _Optional[int] = ..., appendTime: _Optional[int] = ..., durable: bool = ..., duplicate: bool = ...) -> None: ...

class FetchRequestC2B(_message.Message):
    __slots__ = ("clientId", "topicName", "partitionId", "offset", "bytesMax", "endOffset", "waitMs", "filterCondStr", "authInfo")
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTESMAX_FIELD_NUMBER: _ClassVar[int]
    ENDOFFSET_FIELD_NUMBER: _ClassVar[int]
    WAITMS_FIELD_NUMBER: _ClassVar[int]
    FILTERCONDSTR_FIELD_NUMBER: _ClassVar[int]
    AUTHINFO_FIELD_NUMBER: _ClassVar[int]
    clientId: str
    topicName: str
    partitionId: int
    offset: int
    bytesMax: int
    endOffset: int
    waitMs: int
    filterCondStr: _containers.RepeatedScalarFieldContainer[str]
    authInfo: _BrokerService_pb2.AuthorizedInfo
    def __init__(self, clientId: _Optional[str] = ..., topicName: _Optional[str] = ..., partitionId: _Optional[int] = ..., offset: _Optional[int] = ..., bytesMax: _Optional[int] = ..., endOffset: _Optional[int] = ..., waitMs: _Optional[int] = ..., filterCondStr: _Optional[_Iterable[str]] = ..., authInfo: _Optional[_Union[_BrokerService_pb2.AuthorizedInfo, _Mapping]] = ...) -> None: ...

class FetchResponseB2C(_message.Message):
    __slots__ = ("success", "errCode", "errMsg", "messages", "firstOffset", "maxOffset", "spans", "next_offset")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERRCODE_FIELD_NUMBER: _ClassVar[int]
    ERRMSG_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FIRSTOFFSET_FIELD_NUMBER: _ClassVar[int]
    MAXOFFSET_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    success: bool
    errCode: int
    errMsg: str
    messages: _containers.RepeatedCompositeFieldContainer[_BrokerService_pb2.TransferedMessage]
    firstOffset: int
    maxOffset: int
    spans: _containers.RepeatedCompositeFieldContainer[_BrokerService_pb2.Span]
    next_offset: int
    def __init__(self, success: bool = ..., errCode: _Optional[int] = ..., errMsg: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_BrokerService_pb2.TransferedMessage, _Mapping]]] = ..., firstOffset: _Optional[int] = ..., maxOffset: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[_BrokerService_pb2.Span, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ListOffsetsRequestC2B(_message.Message):
    __slots__ = ("clientId", "topicName", "partitionId", "timeMs", "authInfo")
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONID_FIELD_NUMBER: _ClassVar[int]
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    AUTHINFO_FIELD_NUMBER: _ClassVar[int]
    clientId: str
    topicName: str
    partitionId: _containers.RepeatedScalarFieldContainer[int]
    timeMs: int
    authInfo: _BrokerService_pb2.AuthorizedInfo
    def __init__(self, clientId: _Optional[str] = ..., topicName: _Optional[str] = ..., partitionId: _Optional[_Iterable[int]] = ..., timeMs: _Optional[int] = ..., authInfo: _Optional[_Union[_BrokerService_pb2.AuthorizedInfo, _Mapping]] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("partitionId", "errCode", "firstOffset", "nextOffset", "timeOffset")
    PARTITIONID_FIELD_NUMBER: _ClassVar[int]
    ERRCODE_FIELD_NUMBER: _ClassVar[int]
    FIRSTOFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXTOFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMEOFFSET_FIELD_NUMBER: _ClassVar[int]
    partitionId: int
    errCode: int
    firstOffset: int
    nextOffset: int
    timeOffset: int
    def __init__(self, partitionId: _Optional[int] = ..., errCode: _Optional[int] = ..., firstOffset: _Optional[int] = ..., nextOffset: _Optional[int] = ..., timeOffset: _Optional[int] = ...) -> None: ...

class ListOffsetsResponseB2C(_message.Message):
    __slots__ = ("success", "errCode", "errMsg", "offsets")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERRCODE_FIELD_NUMBER: _ClassVar[int]
    ERRMSG_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    errCode: int
    errMsg: str
    offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffsets]
    def __init__(self, success: bool = ..., errCode: _Optional[int] = ..., errMsg: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffsets, _Mapping]]] = ...) -> None: ...

class DescribeRequestC2B(_message.Message):
    __slots__ = ("clientId", "topicName", "groupName", "authInfo")
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    GROUPNAME_FIELD_NUMBER: _ClassVar[int]
    AUTHINFO_FIELD_NUMBER: _ClassVar[int]
    clientId: str
    topicName: _containers.RepeatedScalarFieldContainer[str]
    groupName: str
    authInfo: _BrokerService_pb2.AuthorizedInfo
    def __init__(self, clientId: _Optional[str] = ..., topicName: _Optional[_Iterable[str]] = ..., groupName: _Optional[str] = ..., authInfo: _Optional[_Union[_BrokerService_pb2.AuthorizedInfo, _Mapping]] = ...) -> None: ...

class TopicState(_message.Message):
    __slots__ = ("topicName", "durable", "maxMessageBytes", "acceptPublish", "acceptSubscribe")
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    MAXMESSAGEBYTES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTPUBLISH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    topicName: str
    durable: bool
    maxMessageBytes: int
    acceptPublish: bool
    acceptSubscribe: bool
    def __init__(self, topicName: _Optional[str] = ..., durable: bool = ..., maxMessageBytes: _Optional[int] = ..., acceptPublish: bool = ..., acceptSubscribe: bool = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("topicName", "partitionId", "firstOffset", "nextOffset", "bytes", "committedOffset", "holder", "readOnly")
    TOPICNAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONID_FIELD_NUMBER: _ClassVar[int]
    FIRSTOFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXTOFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTEDOFFSET_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    READONLY_FIELD_NUMBER: _ClassVar[int]
    topicName: str
    partitionId: int
    firstOffset: int
    nextOffset: int
    bytes: int
    committedOffset: int
    holder: str
    readOnly: bool
    def __init__(self, topicName: _Optional[str] = ..., partitionId: _Optional[int] = ..., firstOffset: _Optional[int] = ..., nextOffset: _Optional[int] = ..., bytes: _Optional[int] = ..., committedOffset: _Optional[int] = ..., holder: _Optional[str] = ..., readOnly: bool = ...) -> None: ...

class DescribeResponseB2C(_message.Message):
    __slots__ = ("success", "errCode", "errMsg", "brokerId", "topics", "partitions", "features")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERRCODE_FIELD_NUMBER: _ClassVar[int]
    ERRMSG_FIELD_NUMBER: _ClassVar[int]
    BROKERID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    success: bool
    errCode: int
    errMsg: str
    brokerId: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicState]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    features: int
    def __init__(self, success: bool = ..., errCode: _Optional[int] = ..., errMsg: _Optional[str] = ..., brokerId: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicState, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ..., features: _Optional[int] = ...) -> None: ...

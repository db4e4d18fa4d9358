"""How each call says no: the answer's own message with ``success`` false."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from tube.errors import NotFoundError, SpeedLimitError, TubeError
from tube.pb import BrokerService_pb2 as pb
from tube.pb import TubeExtensions_pb2 as ext
from tube.wire.rpc import Method

TEXT_CHARS_MAX = 1024
"""Longest error text of an answer."""


def brief(error: TubeError) -> str:
    """The text of an error for the wire: names in it may be as long as a frame."""
    text = str(error)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def _plain(kind: Callable[..., Message], **extra: Any) -> Callable[[TubeError], Message]:
    """A refusal that fills success, errCode and errMsg, and ``extra``."""
    return lambda error: kind(success=False, errCode=error.code, errMsg=brief(error), **extra)


def _refuse_get(error: TubeError) -> Message:
    answer = pb.GetMessageResponseB2C(
        success=False, errCode=error.code, errMsg=brief(error), currOffset=-1, currDataDlt=-1
    )
    if isinstance(error, SpeedLimitError):
        answer.minLimitTime = error.wait_ms
    elif isinstance(error, NotFoundError):
        answer.minLimitTime = 0
    return answer


REFUSALS: dict[int, Callable[[TubeError], Message]] = {
    Method.REGISTER_PARTITION: _plain(pb.RegisterResponseB2C, currOffset=-1),
    Method.HEARTBEAT_PARTITIONS: _plain(pb.HeartBeatResponseB2C, hasPartFailure=False),
    Method.GET_MESSAGE: _refuse_get,
    Method.COMMIT_OFFSET: _plain(pb.CommitOffsetResponseB2C, currOffset=-1),
    Method.SEND_BATCH: _plain(ext.SendBatchResponseB2P),
    Method.FETCH: _plain(ext.FetchResponseB2C),
    Method.LIST_OFFSETS: _plain(ext.ListOffsetsResponseB2C),
    Method.DESCRIBE: _plain(ext.DescribeResponseB2C),
}

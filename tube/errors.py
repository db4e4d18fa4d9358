"""Every deliberate failure of Tube, with its TubeMQ number and whether a retry can help.

Source: numbers are TubeMQ's (TErrCodeConstants.java, spec section 8.1).
"""

from __future__ import annotations

from typing import ClassVar


class TubeError(Exception):
    """The root of all failures that Tube raises on purpose.

    ``code`` is the number on the TubeMQ wire, ``retriable`` whether the same call may succeed,
    ``hint`` one line that says what the reader can do ("" when the message says it all).
    """

    code: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint


class WireError(TubeError):
    """The peer broke its protocol; its connection is closed."""

    code = 400


class FrameTooLargeError(WireError):
    """A frame announced more bytes than its sender may send."""


class UnknownMethodError(WireError):
    """A request named a method that this server does not offer."""


class RefusedError(TubeError):
    """The request was understood and is refused."""

    code = 400


class BadRequestError(RefusedError):
    """A field of the request is missing, malformed or out of range."""

    code = 400


class NotOwnerError(RefusedError):
    """A commit for a partition that somebody else holds."""

    code = 401


class ForbiddenError(RefusedError):
    """The topic or partition does not accept this."""

    code = 403


class NotFoundError(RefusedError):
    """What was asked for does not exist (for a pull: no new message)."""

    code = 404
    retriable = True


class ConflictError(RefusedError):
    """The object exists already, or its state does not allow the change."""

    code = 409


class PartitionOccupiedError(RefusedError):
    """Another consumer of the group holds the partition."""

    code = 410
    retriable = True


class NotRegisteredError(RefusedError):
    """The peer does not know this client or partition; register again."""

    code = 411
    retriable = True


class DuplicateHolderError(RefusedError):
    """The partition is held by another consumer of the group."""

    code = 412


class CertificateError(RefusedError):
    """A token or signature is missing, wrong or expired."""

    code = 415


class ReceiveOverflowError(RefusedError):
    """The server cannot take more at this moment; send again later."""

    code = 419
    retriable = True


class InconsistentGroupError(RefusedError):
    """A consumer registered differently from the other members of its group.

    ``code`` tells the kind: 424 consume type, 425 topics, 426 filters, 427 session key,
    428 select-big, 429 source count, 430 node id.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # one class, seven numbers of one kind


class TopicNotDeployedError(RefusedError):
    """A consumer subscribed to a topic that no broker serves."""

    code = 431


class GroupForbiddenError(RefusedError):
    """The group may not consume this topic."""

    code = 450


class SpeedLimitError(RefusedError):
    """The group's flow-control rule asks for a pause of ``wait_ms``."""

    code = 452
    retriable = True

    def __init__(self, message: str, *, wait_ms: int) -> None:
        super().__init__(message)
        self.wait_ms = wait_ms


class ContentForbiddenError(RefusedError):
    """The group may only consume with filters that it did not give."""

    code = 455


class UnavailableError(TubeError):
    """The server cannot serve this now; try later or elsewhere."""

    code = 503
    retriable = True


class StandbyError(UnavailableError):
    """This master does not lead; ask the other one."""


class StoppingError(UnavailableError):
    """The server is shutting down, or its operator stopped this service."""


class DiskFullError(UnavailableError):
    """No room on the disk.  419, since Java shields a broker for 50 s after a 503 (spec 3.6)."""

    code = 419


class OutcomeUnknownError(TubeError):
    """The action may or may not have happened."""

    code = 500
    retriable = True


class StoreError(TubeError):
    """The log or the database failed."""

    code = 500


class CorruptSegmentError(StoreError):
    """Stored bytes do not match their checksum; names the file and position."""


class OffsetOutOfRangeError(StoreError):
    """The offset is before the first or after the end of its partition."""

    code = 404


class ReadOnlyError(StoreError):
    """An I/O error on sync made this partition or store read-only until a restart."""

    code = 419


class StoreInUseError(StoreError):
    """The data directory belongs to another process, another broker or a newer format."""


class StaleEpochError(StoreError):
    """A write or command of a master that no longer leads."""


class SchemaError(StoreError):
    """The database's schema is older or newer than this program needs."""


class ConfigError(TubeError):
    """A configuration is wrong; ``faults`` lists everything that is wrong in it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class ClientError(TubeError):
    """A failure that the SDK itself found."""


class TimedOutError(ClientError):
    """No answer within the deadline of the call."""

    retriable = True


class UnreachableError(ClientError):
    """No connection to the server could be made, or it was lost."""

    code = 503
    retriable = True


class NoBrokerError(ClientError):
    """No broker takes messages for the topic now."""

    code = 503
    retriable = True


class BufferFullError(ClientError):
    """The producer's ``buffer_bytes`` are used up."""

    retriable = True


class ClosedError(ClientError):
    """The client, producer or consumer is closed."""


class StaleAssignmentError(ClientError):
    """The partition has moved to another member; its messages must not be acknowledged here."""


class NotDeliveredError(ClientError):
    """Messages were still unsent when the deadline of ``close`` passed; ``count`` of them."""

    def __init__(self, message: str, *, count: int) -> None:
        super().__init__(message)
        self.count = count

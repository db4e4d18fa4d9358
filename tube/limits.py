"""Every number that bounds something, with the reason beside it."""

from __future__ import annotations

from typing import Final

BLOCK_BYTES_MAX: Final = 8192
"""Longest block we write to original clients: C++ closes on a longer one (spec 1.2)."""

BLOCK_COUNT_MAX: Final = 3584
"""Most blocks in a frame, Java's limit: (20 MiB + 8 MiB) / 8192 (spec 1.2)."""

FRAME_BYTES_MAX: Final = 28 * 1024 * 1024
"""Most payload bytes of a frame that we read, what Java allows (spec 1.2)."""

REPLY_BYTES_MAX: Final = 8 * 1024 * 1024 - 64 * 1024
"""Most payload bytes of an answer to an original client; C++ takes 1024 blocks (spec 1.2)."""

UNAUTHENTICATED_BYTES_MAX: Final = 16 * 1024
"""What a peer may make us hold before its first valid call (design section 4)."""

UNAUTHENTICATED_S_MAX: Final = 10.0
"""How long a peer may take for its first valid call."""

SMALL_CALL_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of a call that carries no messages: 1,024 topics of 64 characters with filters fit."""

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024 - 128 * 1024
"""Largest message size that may be configured (original: 20 MiB, spec 3.4).

One block must take such a message, its attributes, and what else the same read of 64 KiB brought.
"""

MESSAGE_BYTES_DEFAULT: Final = 1024 * 1024
"""Message size limit of a topic that sets none (spec 3.4)."""

ATTRIBUTE_BYTES_SLACK: Final = 10 * 1024
"""What attributes may add to a message of maximum size (spec 3.4)."""

IN_FLIGHT_MAX: Final = 1000
"""Unanswered requests per connection; then we stop reading from it."""

BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unanswered request bytes and unsent answer bytes per connection; then we stop reading from it."""

CLIENT_ID_CHARS_MAX: Final = 1024
HOST_NAME_CHARS_MAX: Final = 256
GROUP_NAME_CHARS_MAX: Final = 1024
TOPIC_NAME_CHARS_MAX: Final = 64
TOPICS_PER_CLIENT_MAX: Final = 1024
FILTER_CHARS_MAX: Final = 256
FILTERS_PER_TOPIC_MAX: Final = 500
USER_NAME_CHARS_MAX: Final = 64
"""Identifier limits of the original master and broker (spec 2.8)."""

FLOW_CONTROL_CHARS_MAX: Final = 64 * 1024
"""Longest flow-control text: 500 rules of 130 characters; the original states no limit."""

DELETE_POLICY_HOURS_MAX: Final = 168
"""Longest retention that the original accepts (spec 12.3)."""

PARTITIONS_PER_STORE_MAX: Final = 10_000
"""partition_id = store_id * 10000 + n (spec 2.8)."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""Partitions that one topic may have on one broker."""

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most payload bytes of one SendBatch and of one block of the log."""

BATCH_COUNT_MAX: Final = 65_536
"""Most messages of one SendBatch and of one block of the log."""

WAIT_MS_MAX: Final = 60_000
"""Longest wait of a held heartbeat or a waiting pull."""

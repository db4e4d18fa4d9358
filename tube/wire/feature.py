"""What our own clients and servers can do beyond the original protocol: bits of ``client_features``.

Source: docs/reference/wire-extensions.md; all optional, absent in original peers.
"""

from __future__ import annotations

from typing import Final

ONE_BLOCK: Final = 1
"""Takes answers of any size in one block."""

WAIT: Final = 2
"""Pulls and heartbeats may wait (``wait_ms``)."""

SPANS: Final = 4
"""Wants offsets and append times of messages (``spans``)."""

BATCH: Final = 8
"""SendBatch, Fetch, ListOffsets and Describe are there."""

ALL: Final = ONE_BLOCK | WAIT | SPANS | BATCH

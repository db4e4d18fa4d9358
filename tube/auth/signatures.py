"""Signatures of clients: what proves that a client knows its user's secret, once and now.

A client signs its user's name, the time and a number (spec section 7.1).  A signature is good within the window
around its time, and only once.  Times are milliseconds since 1970.
"""

from __future__ import annotations

import heapq
import hmac
from dataclasses import dataclass
from typing import Final

from tube.errors import CertificateError, UnavailableError
from tube.wire.message import signature

SEEN_MAX: Final = 200_000
"""So many signatures are remembered, about 30 MB; only genuine ones are, so only users can fill it."""

_WRONG: Final = "the user is unknown or the signature is wrong"


@dataclass(frozen=True, slots=True)
class Signed:
    """What a client signs with: the fields of AuthenticateInfo."""

    user: str
    timestamp_ms: int
    nonce: int
    signature: str


def verify(info: Signed, secret: str | None, now_ms: int, window_ms: int) -> None:
    """Check a signature; ``secret`` is None for an unknown user, who takes as long and hears the same.

    Raises:
        CertificateError: it is wrong, or its time is more than ``window_ms`` away.
    """
    right = signature(info.user, secret or "", info.timestamp_ms, info.nonce).encode()
    given = info.signature.encode("utf-8", "replace")
    if not hmac.compare_digest(right, given) or not secret:
        raise CertificateError(_WRONG, hint="look at the client's user and secret")
    if abs(now_ms - info.timestamp_ms) > window_ms:
        raise CertificateError(
            f"the signature's time is {now_ms - info.timestamp_ms} ms from the master's",
            hint="set the clocks of the client and the master",
        )


class Replays:
    """The signatures that were used within the window; none is good twice."""

    def __init__(self, window_ms: int, count_max: int = SEEN_MAX) -> None:
        self._window_ms = window_ms
        self._count_max = count_max
        self._seen: set[tuple[str, int, int]] = set()
        self._by_time: list[tuple[int, str, int]] = []

    def __len__(self) -> int:
        return len(self._seen)

    def use(self, info: Signed, now_ms: int) -> None:
        """Remember a genuine signature until its window has passed.

        Raises:
            CertificateError: it was used before.  UnavailableError: too many are remembered.
        """
        while self._by_time and self._by_time[0][0] + self._window_ms < now_ms:
            timestamp_ms, user, nonce = heapq.heappop(self._by_time)
            self._seen.discard((user, timestamp_ms, nonce))
        key = (info.user, info.timestamp_ms, info.nonce)
        if key in self._seen:
            raise CertificateError("the signature was used before")
        if len(self._seen) >= self._count_max:
            raise UnavailableError(f"{len(self._seen)} signatures came within the window")
        self._seen.add(key)
        heapq.heappush(self._by_time, (info.timestamp_ms, info.user, info.nonce))

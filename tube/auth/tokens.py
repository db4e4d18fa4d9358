"""Visit tokens and auth tokens: issue, rotate, verify.

A *visit token* is a random positive int64 that says "this client came through the master".  A broker accepts the
last six it was told, and hears of a new one before clients do (spec section 7.4).

An *auth token* is a signed text that brokers verify without asking the master:

    tube1.<key id>.<payload, base64url JSON>.<HMAC-SHA256 of all before, base64url>

Times are milliseconds since 1970 of the wall clock of the machine that looks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tube.errors import CertificateError

AUTH_TOKEN_CHARS_MAX: Final = 4096
"""A longer token is refused unread."""

ACCEPTED_VISIT_TOKENS_MAX: Final = 6
"""How many visit tokens a broker remembers (spec section 7.4)."""

CLOCK_SKEW_MS: Final = 30_000
"""How far the clocks of master and broker may differ."""

_PREFIX: Final = "tube1"


class VisitTokens:
    """The master's side: the token clients get now, and the fresh one that brokers get first.

    ``draw`` returns random bits (``random.SystemRandom().getrandbits``).
    """

    def __init__(self, draw: Callable[[int], int], *, valid_ms: int, now_ms: int) -> None:
        self._draw = draw
        self._valid_ms = valid_ms
        self.current = self._new()
        self.fresh = self.current
        self._issued_at_ms = now_ms

    def rotate(self, now_ms: int) -> bool:
        """Make a fresh token when 4/5 of the validity passed; True when brokers must be told.

        The fresh token becomes current for clients by ``publish``, after the brokers know it.
        """
        if self.fresh != self.current or now_ms - self._issued_at_ms < self._valid_ms * 4 // 5:
            return False
        self.fresh = self._new()
        self._issued_at_ms = now_ms
        return True

    def publish(self) -> None:
        """All brokers know the fresh token: clients get it from now on."""
        self.current = self.fresh

    def _new(self) -> int:
        return self._draw(62) + 1


class AcceptedVisitTokens:
    """The broker's side: the tokens it accepts."""

    def __init__(self) -> None:
        self._tokens: deque[int] = deque(maxlen=ACCEPTED_VISIT_TOKENS_MAX)

    def learn(self, tokens: Iterable[int]) -> None:
        """Remember what the master said; the oldest are forgotten."""
        for token in tokens:
            if token not in self._tokens:
                self._tokens.append(token)

    def accepts(self, token: int) -> bool:
        """Whether ``token`` is one of the remembered ones."""
        return token != 0 and token in self._tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Who a client is and what it may do.  ``"*"`` in a list stands for all names."""

    user: str
    produce: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    expires_at_ms: int

    def may_produce(self, topic: str) -> bool:
        """Whether the holder may send to ``topic``."""
        return "*" in self.produce or topic in self.produce

    def may_consume(self, topic: str) -> bool:
        """Whether the holder may read ``topic``."""
        return "*" in self.consume or topic in self.consume


class AuthTokens:
    """Issues and verifies auth tokens with a ring of secret keys; the newest one signs."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}
        self._newest = ""

    def set_keys(self, keys: Iterable[tuple[str, bytes]]) -> None:
        """Replace the ring; the last key signs.  Key ids are text without dots."""
        self._keys = dict(keys)
        self._newest = next(reversed(self._keys), "")

    def issue(self, rights: Rights) -> str:
        """Sign ``rights`` with the newest key."""
        payload = json.dumps(
            {"u": rights.user, "p": rights.produce, "c": rights.consume, "e": rights.expires_at_ms},
            separators=(",", ":"),
        )
        head = f"{_PREFIX}.{self._newest}.{_encode(payload.encode())}"
        return f"{head}.{_encode(self._sign(self._newest, head))}"

    def verify(self, token: str, now_ms: int) -> Rights:
        """Return the rights in ``token``.

        Raises:
            CertificateError: missing, malformed, unknown key, wrong signature or expired.
        """
        if not token:
            raise CertificateError(
                "no auth token", hint="log in: give the client a user and a secret"
            )
        if len(token) > AUTH_TOKEN_CHARS_MAX:
            raise CertificateError(
                f"the auth token has more than {AUTH_TOKEN_CHARS_MAX} characters"
            )
        head, _, signature = token.rpartition(".")
        prefix, _, rest = head.partition(".")
        key_id, _, payload = rest.partition(".")
        if prefix != _PREFIX or key_id not in self._keys:
            raise CertificateError("the auth token is not one of this cluster's")
        if not hmac.compare_digest(_encode(self._sign(key_id, head)).encode(), signature.encode()):
            raise CertificateError("the auth token's signature is wrong")
        rights = _rights(payload)
        if now_ms > rights.expires_at_ms + CLOCK_SKEW_MS:
            raise CertificateError(
                "the auth token has expired", hint="register again with the master"
            )
        return rights

    def _sign(self, key_id: str, text: str) -> bytes:
        return hmac.new(self._keys[key_id], text.encode(), hashlib.sha256).digest()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _rights(payload: str) -> Rights:
    try:
        fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return Rights(
            user=str(fields["u"]),
            produce=tuple(map(str, fields["p"])),
            consume=tuple(map(str, fields["c"])),
            expires_at_ms=int(fields["e"]),
        )
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise CertificateError(f"the auth token's payload is malformed: {error}") from error

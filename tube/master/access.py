"""Who clients are and what they may do: signatures, tokens, networks without signatures.

A client proves who it is with a signature, and with the token that it gets for it until that expires.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tube.auth.signatures import Replays, Signed, verify
from tube.auth.tokens import AuthTokens, Rights
from tube.config import TokenConfig
from tube.errors import CertificateError, ConfigError, ForbiddenError, GroupForbiddenError

T = TypeVar("T")

WORLD: Final = ("*",)
NOBODY: Final = "client:"
"""Begins the name of who did not sign; no user is called so."""

WAITING_MAX: Final = 10_000

Key = tuple[str, str]
"""Group (blank: a producer) and client id."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with its secret, decrypted."""

    name: str
    secret: str
    produce: tuple[str, ...]
    consume: tuple[str, ...]

    def __repr__(self) -> str:
        return f"User({self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a client shows: who it says it is, its signature, its token, and where it comes from.

    ``secure``: it came on TLS, and shall go to brokers on TLS.
    """

    client_id: str = ""
    signed: Signed | None = None
    token: str = ""
    host: str = ""
    secure: bool = False


UNKNOWN: Final = Claim()


class Waiting(Generic[T]):
    """What was put down by clients that must come back soon; the oldest are forgotten."""

    def __init__(self, valid_s: float, now_s: Callable[[], float]) -> None:
        self._valid_s = valid_s
        self._now_s = now_s
        self._entries: OrderedDict[Key, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: Key, value: T) -> None:
        """Put down, for ``valid_s`` seconds."""
        now_s = self._now_s()
        self._entries.pop(key, None)
        while self._entries:
            oldest = next(iter(self._entries))
            if len(self._entries) < WAITING_MAX and now_s < self._entries[oldest][0]:
                break
            del self._entries[oldest]
        self._entries[key] = (now_s + self._valid_s, value)

    def get(self, key: Key) -> T | None:
        """What was put down, if it is still there."""
        entry = self._entries.get(key)
        return None if entry is None or self._now_s() >= entry[0] else entry[1]

    def drop(self, key: Key) -> None:
        """It is done."""
        self._entries.pop(key, None)


class Access:
    """Identifies clients by what they show.  ``wall_ms`` is the wall clock, ``now_s`` monotonic.

    Raises:
        ConfigError: an unsigned network is malformed.
    """

    def __init__(
        self,
        options: TokenConfig,
        tokens: AuthTokens,
        wall_ms: Callable[[], int],
        now_s: Callable[[], float],
        *,
        replays: Replays,
        asked_s: float,
    ) -> None:
        self.producers_sign = options.sign_producers
        self.consumers_sign = options.sign_consumers
        self.users: dict[str, User] = {}
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._valid_ms = int(options.auth_token_valid_s * 1000)
        self._window_ms = int(options.signature_window_s * 1000)
        self._networks = parse_networks(options.unsigned_networks)
        self._replays = replays
        self._asked: Waiting[bool] = Waiting(asked_s, now_s)

    def identify(self, claim: Claim, *, signs: bool) -> Rights | None:
        """Who the client is; None when it shows nothing that counts.  ``signs``: clients like it must sign.

        Raises:
            CertificateError: its signature is wrong, stale or used.
        """
        if not signs:
            return self._nobody(claim, self._open_rights())
        if claim.signed is not None:
            return self._signed(claim.signed)
        rights = self._by_token(claim.token) if claim.token else None
        if rights is None and self._need_not_sign(claim.host):
            return self._nobody(claim, (WORLD, WORLD))
        return rights

    def require(self, claim: Claim, *, signs: bool) -> Rights:
        """Who the client is.

        Raises:
            CertificateError: it shows nothing that counts, or a signature that is wrong, stale or used.
        """
        rights = self.identify(claim, signs=signs)
        if rights is None:
            raise CertificateError(
                "this cluster wants signed clients", hint="give the client a user and a secret"
            )
        return rights

    def ask(self, key: Key) -> None:
        """The client is asked to sign; it must with its next heartbeat.

        Raises:
            CertificateError: it was asked and did not.
        """
        if self._asked.get(key):
            self._asked.drop(key)
            raise CertificateError("the client was asked to sign and did not")
        self._asked.put(key, True)

    def answered(self, key: Key) -> None:
        """The client did what it was asked to."""
        self._asked.drop(key)

    def token(self, rights: Rights) -> str:
        """The text that stands for ``rights`` until they expire."""
        return self._tokens.issue(rights)

    def _signed(self, signed: Signed) -> Rights:
        user, now_ms = self.users.get(signed.user), self._wall_ms()
        verify(signed, user.secret if user is not None else None, now_ms, self._window_ms)
        assert user is not None  # without a secret nothing verifies
        self._replays.use(signed, now_ms)
        return _rights(user, now_ms + self._valid_ms)

    def _by_token(self, token: str) -> Rights | None:
        """Rights as they are now, until the token expires."""
        try:
            held = self._tokens.verify(token, self._wall_ms())
        except CertificateError:
            return None
        user = self.users.get(held.user)
        return _rights(user, held.expires_at_ms) if user is not None else None

    def _need_not_sign(self, host: str) -> bool:
        if not self._networks or not host:
            return False
        address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def _open_rights(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What those may do who need not sign: not what others must sign for."""
        return () if self.producers_sign else WORLD, () if self.consumers_sign else WORLD

    def _nobody(self, claim: Claim, may: tuple[tuple[str, ...], tuple[str, ...]]) -> Rights:
        expires_at_ms = self._wall_ms() + self._valid_ms
        name = NOBODY + claim.client_id[:256]
        return Rights(user=name, produce=may[0], consume=may[1], expires_at_ms=expires_at_ms)


def parse_networks(
    texts: Iterable[str],
) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The networks of ``tokens.unsigned_networks``.

    Raises:
        ConfigError: names all that are malformed.
    """
    found, faults = [], []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            faults.append(f"tokens.unsigned_networks: {error}")
    if faults:
        raise ConfigError(faults)
    return found


def check_produce(rights: Rights, topics: Collection[str]) -> None:
    """Check that the client may send to all of these.

    Raises:
        ForbiddenError: names those that it may not.
    """
    refused = sorted(topic for topic in topics if not rights.may_produce(topic))
    if refused:
        raise ForbiddenError(f"user {rights.user!r} may not produce to {', '.join(refused)}")


def check_consume(rights: Rights, topics: Collection[str]) -> None:
    """Check that the client may read all of these.

    Raises:
        GroupForbiddenError: names those that it may not.
    """
    refused = sorted(topic for topic in topics if not rights.may_consume(topic))
    if refused:
        raise GroupForbiddenError(f"user {rights.user!r} may not consume {', '.join(refused)}")


def _rights(user: User, expires_at_ms: int) -> Rights:
    return Rights(
        user=user.name, produce=user.produce, consume=user.consume, expires_at_ms=expires_at_ms
    )

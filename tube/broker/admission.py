"""Whom the broker lets in: visit tokens and signed tokens, as the master demands.

Tokens are checked in registers, heartbeats and sends; pulls and commits are protected by the hold
(spec section 7.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tube.auth.tokens import AcceptedVisitTokens, AuthTokens, Rights
from tube.errors import CertificateError, ForbiddenError
from tube.pb.BrokerService_pb2 import AuthorizedInfo

VISIT_CHECK_DELAY_S = 2.0
"""After a broker registered anew its clients get this long to come with a token it knows."""

_CACHED_MAX = 10_000


@dataclass(slots=True)
class Demands:
    """What clients must show."""

    visit_token: bool = False
    producers_sign: bool = False
    consumers_sign: bool = False


class Admission:
    """Checks the tokens of clients; the master's newest word counts.

    ``wall_ms`` is the wall clock; ``now_s`` is monotonic.
    """

    def __init__(self, wall_ms: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._now_s = now_s
        self._visits = AcceptedVisitTokens()
        self._tokens = AuthTokens()
        self._cached: dict[str, Rights] = {}
        self._check_visits_from_s = 0.0
        self.demands = Demands()
        self.epoch = 0

    def learn_visit_tokens(self, tokens: Iterable[int]) -> None:
        """The master accepts these from now on."""
        self._visits.learn(tokens)

    def learn_keys(self, keys: Iterable[tuple[str, bytes]]) -> None:
        """Replace the keys that sign auth tokens."""
        self._tokens.set_keys(keys)
        self._cached.clear()

    def registered(self) -> None:
        """The broker has just registered with a master."""
        self._check_visits_from_s = self._now_s() + VISIT_CHECK_DELAY_S

    def admit_producer(self, info: AuthorizedInfo, topic: str) -> None:
        """Let a producer pass, or refuse it.

        Raises:
            CertificateError: a demanded token is missing, unknown or expired.
            ForbiddenError: the token does not allow the topic.
        """
        demands = self.demands
        if demands.visit_token:
            self._check_visit(info)
        if demands.producers_sign and not self._rights(info).may_produce(topic):
            raise ForbiddenError(f"the token does not allow to produce to {topic!r}")

    def admit_consumer(self, info: AuthorizedInfo, topic: str) -> None:
        """Let a consumer pass, or refuse it.

        Raises:
            CertificateError: a demanded token is missing, unknown or expired.
            ForbiddenError: the token does not allow the topic.
        """
        demands = self.demands
        if demands.visit_token:
            self._check_visit(info)
        if demands.consumers_sign and not self._rights(info).may_consume(topic):
            raise ForbiddenError(f"the token does not allow to consume {topic!r}")

    def _check_visit(self, info: AuthorizedInfo) -> None:
        token = info.visitAuthorizedToken
        if not self._visits.accepts(token) and self._now_s() >= self._check_visits_from_s:
            raise CertificateError("the visit token is not one that the master gave")

    def _rights(self, info: AuthorizedInfo) -> Rights:
        """Rights of a token; a verified one is remembered until it expires."""
        token = info.authAuthorizedToken
        now_ms = self._wall_ms()
        cached = self._cached.get(token)
        if cached is not None and now_ms <= cached.expires_at_ms:
            return cached
        rights = self._tokens.verify(token, now_ms)
        if len(self._cached) >= _CACHED_MAX:
            self._cached.clear()
        self._cached[token] = rights
        return rights

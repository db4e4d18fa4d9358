"""Tokens: what the master demands, nothing else."""

from __future__ import annotations

import pytest

from tube.auth.tokens import CLOCK_SKEW_MS, AuthTokens, Rights
from tube.broker.admission import VISIT_CHECK_DELAY_S, Admission
from tube.errors import CertificateError, ForbiddenError
from tube.pb.BrokerService_pb2 import AuthorizedInfo


class Gate:
    """An admission with clocks of its own."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.now_s = 100.0
        self.admission = Admission(lambda: self.wall_ms, lambda: self.now_s)
        self.tokens = AuthTokens()
        self.tokens.set_keys([("k", b"secret")])
        self.admission.learn_keys([("k", b"secret")])

    def token(self, produce=("*",), consume=("*",), valid_ms: int = 1000) -> AuthorizedInfo:
        rights = Rights(
            user="u", produce=produce, consume=consume, expires_at_ms=self.wall_ms + valid_ms
        )
        return AuthorizedInfo(visitAuthorizedToken=0, authAuthorizedToken=self.tokens.issue(rights))


def test_nothing_is_demanded_at_first() -> None:
    """Without a word of the master everybody passes, whatever they show."""
    gate = Gate()
    for info in (AuthorizedInfo(visitAuthorizedToken=5, authAuthorizedToken="x"), AuthorizedInfo()):
        gate.admission.admit_producer(info, "demo")
        gate.admission.admit_consumer(info, "demo")


def test_visit_tokens_are_checked_a_moment_after_registering() -> None:
    """Clients get two seconds to come with a token that the broker knows."""
    gate = Gate()
    gate.admission.demands.visit_token = True
    gate.admission.learn_visit_tokens([7])
    gate.admission.registered()
    stale = AuthorizedInfo(visitAuthorizedToken=6)
    gate.admission.admit_producer(stale, "demo")
    gate.now_s += VISIT_CHECK_DELAY_S
    for admit in (gate.admission.admit_producer, gate.admission.admit_consumer):
        with pytest.raises(CertificateError):
            admit(stale, "demo")
        admit(AuthorizedInfo(visitAuthorizedToken=7), "demo")


def test_rights_are_of_a_topic_and_a_direction() -> None:
    """A token to produce does not let its bearer consume."""
    gate = Gate()
    gate.admission.demands.producers_sign = gate.admission.demands.consumers_sign = True
    info = gate.token(produce=("demo",), consume=())
    gate.admission.admit_producer(info, "demo")
    with pytest.raises(ForbiddenError):
        gate.admission.admit_producer(info, "other")
    with pytest.raises(ForbiddenError):
        gate.admission.admit_consumer(info, "demo")


def test_a_remembered_token_expires_and_ends_with_its_key() -> None:
    """Being verified once does not make it valid for ever."""
    gate = Gate()
    gate.admission.demands.producers_sign = True
    info = gate.token()
    gate.admission.admit_producer(info, "demo")
    gate.wall_ms += 1000 + CLOCK_SKEW_MS + 1
    with pytest.raises(CertificateError, match="expired"):
        gate.admission.admit_producer(info, "demo")
    fresh = gate.token()
    gate.admission.admit_producer(fresh, "demo")
    gate.admission.learn_keys([("other", b"x")])
    with pytest.raises(CertificateError):
        gate.admission.admit_producer(fresh, "demo")


def test_remembered_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with ever new tokens costs no memory."""
    monkeypatch.setattr("tube.broker.admission._CACHED_MAX", 10)
    gate = Gate()
    gate.admission.demands.consumers_sign = True
    for i in range(50):
        gate.admission.admit_consumer(gate.token(valid_ms=1000 + i), "demo")

    assert len(gate.admission._cached) <= 10

"""Tokens verify until they expire, and never when a byte changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.auth.tokens import (
    ACCEPTED_VISIT_TOKENS_MAX,
    AUTH_TOKEN_CHARS_MAX,
    CLOCK_SKEW_MS,
    AcceptedVisitTokens,
    AuthTokens,
    Rights,
    VisitTokens,
)
from tube.errors import CertificateError

RIGHTS = Rights(user="ann", produce=("orders",), consume=("*",), expires_at_ms=1_000_000)


def issuer() -> AuthTokens:
    tokens = AuthTokens()
    tokens.set_keys([("old", b"o" * 32), ("new", b"n" * 32)])
    return tokens


def test_a_token_verifies_until_it_expires_and_not_after() -> None:
    """The clock skew is granted, not a millisecond more."""
    tokens = issuer()
    token = tokens.issue(RIGHTS)

    assert tokens.verify(token, 1_000_000 + CLOCK_SKEW_MS) == RIGHTS
    with pytest.raises(CertificateError, match="expired"):
        tokens.verify(token, 1_000_001 + CLOCK_SKEW_MS)


def test_rights_name_topics_or_all() -> None:
    """A star stands for all topics, a name for itself."""
    assert RIGHTS.may_produce("orders")
    assert not RIGHTS.may_produce("other")
    assert RIGHTS.may_consume("other")
    assert not Rights(user="x", expires_at_ms=0).may_consume("orders")


@given(st.data())
def test_any_changed_character_fails(data: st.DataObject) -> None:
    """Whatever is changed in a token, it is refused."""
    tokens = issuer()
    token = tokens.issue(RIGHTS)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda c: c != token[at]))

    with pytest.raises(CertificateError):
        tokens.verify(token[:at] + other + token[at + 1 :], 0)


@given(st.text(max_size=200))
def test_garbage_is_refused(text: str) -> None:
    """Text that nobody signed is refused, and nothing else happens."""
    with pytest.raises(CertificateError):
        issuer().verify(text, 0)


def test_a_signed_payload_that_is_no_rights_is_refused() -> None:
    """Even with the right key the payload must make sense."""
    tokens = issuer()
    head = "tube1.new.AAAA"
    from tube.auth.tokens import _encode

    with pytest.raises(CertificateError, match="malformed"):
        tokens.verify(f"{head}.{_encode(tokens._sign('new', head))}", 0)


def test_an_overlong_token_is_refused_unread() -> None:
    """The limit comes before any work."""
    with pytest.raises(CertificateError, match="more than"):
        issuer().verify("x" * (AUTH_TOKEN_CHARS_MAX + 1), 0)


def test_the_newest_key_signs_and_old_ones_still_verify() -> None:
    """Rotating the key does not throw out clients."""
    tokens = issuer()
    token = tokens.issue(RIGHTS)
    assert token.startswith("tube1.new.")
    tokens.set_keys([("new", b"n" * 32), ("newer", b"m" * 32)])

    assert tokens.verify(token, 0) == RIGHTS
    tokens.set_keys([("newer", b"m" * 32)])
    with pytest.raises(CertificateError):
        tokens.verify(token, 0)


def test_brokers_hear_of_a_visit_token_before_clients() -> None:
    """After a rotation clients keep the current token until it is published."""
    drawn = iter([1, 2, 3])
    tokens = VisitTokens(lambda _bits: next(drawn), valid_ms=1000, now_ms=0)
    assert not tokens.rotate(799)
    assert tokens.rotate(800)
    assert (tokens.current, tokens.fresh) == (2, 3)
    assert not tokens.rotate(10_000)
    tokens.publish()

    assert (tokens.current, tokens.fresh) == (3, 3)


def test_a_broker_accepts_the_last_six_visit_tokens() -> None:
    """Older ones are forgotten; zero (an absent field) never counts."""
    accepted = AcceptedVisitTokens()
    accepted.learn(range(1, 9))
    accepted.learn([8])

    assert [t for t in range(10) if accepted.accepts(t)] == list(range(3, 9))
    assert ACCEPTED_VISIT_TOKENS_MAX == 6
    assert not accepted.accepts(0)

"""A signature is good for who knows the secret, within its window, once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.auth.signatures import Replays, Signed, verify
from tube.errors import CertificateError, UnavailableError
from tube.wire.message import signature

WINDOW_MS = 20_000
NOW_MS = 1_795_212_498_588

users = st.text(min_size=1, max_size=20)
times = st.integers(0, 2**53)
nonces = st.integers(0, 2**31 - 1)


def signed(user: str = "usr", at_ms: int = NOW_MS, nonce: int = 7, secret: str = "pwd") -> Signed:
    return Signed(user, at_ms, nonce, signature(user, secret, at_ms, nonce))


def test_a_java_client_s_signature_verifies() -> None:
    """Captured from a live client (spec 7.1)."""
    info = Signed("usr", NOW_MS, 405062434, "ql0eRBbFVZLbjGPA5PD9bLAC66A%3D")

    verify(info, "pwd", NOW_MS, WINDOW_MS)


@given(users, times, nonces, st.text(min_size=1), st.integers(-WINDOW_MS, WINDOW_MS))
def test_what_is_signed_verifies_within_the_window(user, at_ms, nonce, secret, off_ms) -> None:
    """To the millisecond, in both directions."""
    verify(signed(user, at_ms, nonce, secret), secret, at_ms + off_ms, WINDOW_MS)


@pytest.mark.parametrize("off_ms", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_a_stale_signature_is_refused(off_ms) -> None:
    """And one from the future."""
    with pytest.raises(CertificateError, match="time is"):
        verify(signed(), "pwd", NOW_MS + off_ms, WINDOW_MS)


@given(users, times, nonces, st.text(), st.text())
def test_another_secret_fails(user, at_ms, nonce, mine, theirs) -> None:
    """Also none at all, and the empty one."""
    info = signed(user, at_ms, nonce, mine)
    if mine.rstrip("\0") != theirs.rstrip("\0"):  # HMAC fills short keys with zeros
        with pytest.raises(CertificateError, match="unknown or"):
            verify(info, theirs, at_ms, WINDOW_MS)
    with pytest.raises(CertificateError, match="unknown or"):
        verify(info, None, at_ms, WINDOW_MS)
    with pytest.raises(CertificateError):
        verify(signed(secret=""), "", NOW_MS, WINDOW_MS)


@given(st.data())
def test_any_changed_character_fails(data) -> None:
    """Whatever is changed in a signature, it is refused."""
    info = signed()
    at = data.draw(st.integers(0, len(info.signature) - 1))
    other = data.draw(st.characters().filter(lambda c: c != info.signature[at]))
    text = info.signature[:at] + other + info.signature[at + 1 :]

    with pytest.raises(CertificateError):
        verify(replace(info, signature=text), "pwd", NOW_MS, WINDOW_MS)


@given(st.text(), st.integers(), st.integers(), st.text(), st.integers())
def test_garbage_is_refused_and_nothing_else(user, at_ms, nonce, text, now_ms) -> None:
    """Whatever a peer sends."""
    with pytest.raises(CertificateError):
        verify(Signed(user, at_ms, nonce, text), "secret", now_ms, WINDOW_MS)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-50, 50), st.integers(0, 3)), max_size=60))
def test_within_its_window_a_signature_is_good_once(steps) -> None:
    """Against a model that never forgets; what is forgotten is out of its window."""
    window_ms, now_ms = 50, 1000
    replays, used = Replays(window_ms), set()
    for forward_ms, off_ms, nonce in steps:
        now_ms += forward_ms
        info = Signed("u", now_ms + off_ms, nonce, "")
        if info in used:
            with pytest.raises(CertificateError, match="before"):
                replays.use(info, now_ms)
        else:
            replays.use(info, now_ms)
        used.add(info)

        assert len(replays) <= len({one for one in used if one.timestamp_ms + window_ms >= now_ms})


def test_memory_is_bounded_and_comes_back() -> None:
    """A full memory refuses what it could not remember."""
    replays = Replays(100, count_max=3)
    for nonce in range(3):
        replays.use(signed(nonce=nonce), NOW_MS)
    with pytest.raises(UnavailableError):
        replays.use(signed(nonce=3), NOW_MS)

    replays.use(signed(at_ms=NOW_MS + 101, nonce=3), NOW_MS + 101)

    assert len(replays) == 1

"""Keys, headers and filters come back as they were sent, and original clients can read what needs no escaping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.client import payload
from tube.errors import BadRequestError, WireError
from tube.wire import message as wire

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.binary(max_size=50),
    st.none() | st.binary(max_size=20),
    st.none() | st.from_regex(r"[_A-Za-z0-9]+", fullmatch=True),
    st.dictionaries(texts.filter(bool), texts, max_size=4),
)
def test_everything_comes_back(
    value: bytes, key: bytes | None, kind: str | None, headers: dict[str, str]
) -> None:
    """Whatever bytes and characters are in them."""
    reserved = {payload.KEY, payload.ENCODED, wire.TYPE_KEY, wire.TIME_KEY}
    headers = {k: v for k, v in headers.items() if k not in reserved}
    data, flag = payload.pack(value, key, kind, headers)

    assert payload.unpack(data, flag) == (value, key, kind, headers)


def test_plain_names_are_plain_attributes() -> None:
    """A Java consumer reads key, filter and headers without knowing us."""
    data, flag = payload.pack(b"v", "k1", "t1", {"city": "Oslo"})

    assert wire.unpack(data, flag).attributes == {"$msgType$": "t1", "$key$": "k1", "city": "Oslo"}


def test_a_message_without_attributes_has_no_flag() -> None:
    """Nothing is added to a bare value."""
    assert payload.pack(bytearray(b"v")) == (b"v", 0)
    assert payload.unpack(b"v", 0) == (b"v", None, None, {})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"headers": {"": "x"}}, BadRequestError),
        ({"headers": {"$key$": "x"}}, BadRequestError),
        ({"filter": "not ok"}, BadRequestError),
        ({"value": "text"}, TypeError),
    ],
)
def test_what_cannot_be_sent_is_refused(fields: dict[str, object], error: type[Exception]) -> None:
    """Before anything is queued."""
    with pytest.raises(error):
        payload.pack(**{"value": b"v", **fields})


def test_lying_attributes_are_an_error() -> None:
    """The flag promises attributes that are not there."""
    with pytest.raises(WireError):
        payload.unpack(b"\x00\x00\x00\x09x", 1)

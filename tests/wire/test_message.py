"""Payloads: attributes, checksums, type codes and signatures are those of the original."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import OTHER
from tube.errors import BadRequestError, WireError
from tube.wire import message
from tube.wire.message import HAS_ATTRIBUTES, TIME_KEY, TYPE_KEY, pack, unpack

texts = st.text(st.characters(exclude_characters=",=", exclude_categories=["Cs"]), max_size=20)
attributes = st.dictionaries(texts.filter(lambda t: t and not t.startswith("$msg")), texts)


def test_the_golden_payload_is_packed_and_unpacked():
    """Type and time go first, whatever the order they were given in."""
    golden = OTHER["attribute_encoding"]
    data, body = bytes.fromhex(golden["data_hex"]), bytes.fromhex(golden["body_hex"])
    packed = pack(body, {TIME_KEY: "202401010000", TYPE_KEY: "t1"})

    assert packed == (data, golden["flag"])
    assert unpack(*packed) == ({TYPE_KEY: "t1", TIME_KEY: "202401010000"}, body)
    assert message.check_sum(data) == golden["checkSum_crc32_and_7fffffff"]
    assert message.value_start(data, 1) == len(data) - len(body)
    assert message.value_start(data, 2) == 0


@given(st.binary(max_size=50), attributes)
def test_what_is_packed_comes_back(value, given_attributes):
    """Value and attributes survive; without attributes the payload is the value."""
    packed = pack(value, given_attributes)

    assert unpack(*packed) == (given_attributes, value)
    assert packed.flag == (HAS_ATTRIBUTES if given_attributes else 0)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_random_payloads_unpack_or_are_refused(data, flag):
    """No payload leads to anything but a result or WireError."""
    try:
        unpacked = unpack(data, flag)
    except WireError:
        assert flag & HAS_ATTRIBUTES
    else:
        assert data.endswith(unpacked.value)


@pytest.mark.parametrize("data", [b"", b"abc", b"\x00\x00\x00\x05abcd", b"\xff\xff\xff\xffabcd"])
def test_lying_lengths_are_refused(data):
    """Attributes must fit into the payload that promises them."""
    with pytest.raises(WireError):
        unpack(data, HAS_ATTRIBUTES)
    assert unpack(data, 2) == ({}, data)


def test_attributes_that_are_not_text_are_refused():
    """Attribute text is UTF-8."""
    with pytest.raises(WireError, match="UTF-8"):
        unpack(b"\x00\x00\x00\x01\xff", HAS_ATTRIBUTES)


def test_foreign_attribute_texts_are_read_leniently():
    """Other clients escape nothing: what has no '=' is a key, more '=' belong to the value."""
    assert message.parse_attributes("a,b=1=2,,c=") == {"a": "", "b": "1=2", "c": ""}


@pytest.mark.parametrize(
    "wrong",
    [
        {"a,": "1"},
        {"a": "1=2"},
        {"": "1"},
        {TIME_KEY: "2024"},
        {TIME_KEY: "2024010100\u0660\u0660"},
    ],
)
def test_attributes_that_cannot_be_written_are_refused(wrong):
    """There is no escaping, so separators cannot be in keys and values."""
    with pytest.raises(BadRequestError):
        pack(b"", wrong)


def test_the_golden_checksums():
    """CRC-32 without the top bit."""
    for golden in OTHER["check_sums"]:
        assert message.check_sum(bytes.fromhex(golden["data_hex"])) == golden["checkSum"]


def test_the_golden_type_codes():
    """Java's String.hashCode, negative ones and collisions included."""
    for golden in OTHER["filter_hash"]:
        assert message.filter_hash(golden["text"]) == golden["hash"]
    assert message.filter_hash("") == 0
    assert message.filter_hash("\U0001f600") == 0xD83D * 31 + 0xDE00  # two UTF-16 units


def test_the_golden_signatures():
    """HMAC-SHA1, as the Java SDK signed."""
    for golden in OTHER["auth_signature"]:
        signed = message.signature(
            golden["userName"], golden["password"], golden["timestamp"], golden["nonce"]
        )
        assert signed == golden["signature"]

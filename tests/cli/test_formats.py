"""kcat's format strings."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.cli.formats import compile_format, document
from tube.client.values import Message
from tube.values import Partition

MESSAGE = Message(
    b"v\xff",
    Partition("t", 1, 2),
    3,
    timestamp_ms=4,
    key=b"k",
    filter="f",
    headers={"a": "b", "c": "d"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t [%b:%p] %o", b"t [1:2] 3"),
        ("%k=%s\\n", b"k=v\xff\n"),
        ("%K %S %T %f", b"1 2 4 f"),
        ("%h\\t%%\\\\", b"a=b,c=d\t%\\"),
        ("äö", "äö".encode()),
    ],
)
def test_tokens(text: str, expected: bytes) -> None:
    """Each stands for one field."""
    assert compile_format(text)(MESSAGE) == expected


@pytest.mark.parametrize("text", ["%q", "100%", "\\x", "\\"])
def test_what_is_no_token_is_refused(text: str) -> None:
    """With those that there are."""
    with pytest.raises(click.BadParameter):
        compile_format(text)


def test_a_message_without_a_key() -> None:
    """Its key is empty, the length -1 tells."""
    assert compile_format("%k|%K")(Message(b"", Partition("t", 1, 2), 0)) == b"|-1"


@given(st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_plain_text_stays(text: str) -> None:
    """Whatever it is."""
    assert compile_format(text)(MESSAGE) == text.encode()


def test_bytes_that_are_no_text_are_base64() -> None:
    """Under another name, so that nobody takes them for text."""
    found = document(MESSAGE)
    assert (found["key"], found["value_base64"], "value" in found) == ("k", "dv8=", False)
    assert document(Message(b"", Partition("t", 1, 2), 0))["key"] is None

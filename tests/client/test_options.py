"""Where the masters are."""

from __future__ import annotations

import pytest

from tube.client.options import parse_url
from tube.errors import BadRequestError
from tube.values import Address


@pytest.mark.parametrize(
    ("url", "masters"),
    [
        ("tube://a", [Address("a", 8715)]),
        ("a:1,b:2", [Address("a", 1), Address("b", 2)]),
        ("tube://[::1]:7,[::2]", [Address("::1", 7), Address("::2", 8715)]),
    ],
)
def test_urls_name_masters(url: str, masters: list[Address]) -> None:
    """The scheme and the port may be left out."""
    assert parse_url(url) == masters


@pytest.mark.parametrize(
    "url", ["", "http://a", "tube://", "tube://a:0", "tube://a:x", "tube://a:1,", "a:65536"]
)
def test_other_urls_are_refused(url: str) -> None:
    """With the text that is wrong."""
    with pytest.raises(BadRequestError, match="expected"):
        parse_url(url)

"""The test tools themselves: an async test that fails must be seen to fail."""

from __future__ import annotations

import pytest


@pytest.mark.xfail(strict=True)
async def test_async_assertions_are_awaited() -> None:
    """With a Twisted that cannot run coroutine tests, this one would pass."""
    assert False  # noqa: B011, PT015

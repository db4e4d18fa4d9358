"""Secrets come back with the key that sealed them, and with no other."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from tube.errors import ConfigError, StoreError
from tube.master.cluster_key import ClusterKey


def test_what_is_sealed_opens_with_the_same_key_only() -> None:
    """And does not show."""
    key, other = (ClusterKey(Fernet.generate_key().decode()) for _ in range(2))
    sealed = key.seal("geheim ü")

    assert key.open(sealed) == "geheim ü"
    assert b"geheim" not in sealed
    assert key.seal("geheim ü") != sealed
    with pytest.raises(StoreError, match="another"):
        other.open(sealed)
    with pytest.raises(StoreError):
        key.open(sealed[:-1])


@pytest.mark.parametrize("text", ["", "short", "ü" * 44, "A" * 43 + "!"])
def test_no_key_is_a_fault_of_the_configuration(text) -> None:
    """One line that says what to do."""
    with pytest.raises(ConfigError, match="tube user key"):
        ClusterKey(text)

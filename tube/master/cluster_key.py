"""The cluster key: what the secrets in the database are encrypted with.

It lies in a file of the masters, never in SQL: who copies the database has no secret.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken

from tube.errors import ConfigError, StoreError


class ClusterKey:
    """Seals and opens secrets with the key's text, as ``tube user key`` writes it.

    Raises:
        ConfigError: the text is no key.
    """

    def __init__(self, text: str) -> None:
        try:
            self._fernet = Fernet(text)
        except ValueError as error:
            raise ConfigError(
                ["tokens.cluster_key_file: it holds no cluster key; make one with: tube user key"]
            ) from error

    def seal(self, secret: str) -> bytes:
        """The secret as it is stored."""
        return self._fernet.encrypt(secret.encode())

    def open(self, sealed: bytes) -> str:
        """The secret again.

        Raises:
            StoreError: it was sealed with another key, or damaged.
        """
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken as error:
            raise StoreError("the secret was sealed with another cluster key") from error

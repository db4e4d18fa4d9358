"""What operators do with users: add, list, delete."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from tube.errors import BadRequestError, ConflictError, NotFoundError
from tube.master.core import Core
from tube.master.db import users as user_rows
from tube.master.db.users import UserRow
from tube.wire import records

SECRET_MIN: Final = 8
SECRET_MAX: Final = 256
"""Bytes of a secret."""

TOPICS_CHARS_MAX: Final = 2000
"""Most characters of a user's topics together: they travel in a token (tube.auth.tokens)."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Users:
    """Users of clients, in SQL and in the leader's memory."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def all(self) -> list[UserRow]:
        """All users by name.

        Raises:
            StandbyError: we do not lead.
        """
        self._core.leader.require()
        return [row for _, row in sorted(self._core.users.items())]

    async def add(
        self,
        name: str,
        secret: str,
        *,
        produce: Sequence[str],
        consume: Sequence[str],
        principal: str,
    ) -> UserRow:
        """Add a user that may produce to and consume these topics; ``*`` is all.

        Raises:
            BadRequestError: a name or the secret is malformed.  ConflictError: it exists, or there is no
                cluster key.  StandbyError: we do not lead.
        """
        _check(name, secret, [*produce, *consume])
        core = self._core
        if core.cluster_key is None:
            raise ConflictError(
                "users need a cluster key",
                hint="make one with: tube user key FILE — and set tokens.cluster_key_file on every master",
            )
        row = UserRow(
            name=name,
            sealed=core.cluster_key.seal(secret),
            produce=tuple(sorted(set(produce))),
            consume=tuple(sorted(set(consume))),
            created_ms=core.wall_ms(),
        )
        async with core.admin_lock:
            await core.database.write(user_rows.add, core.leader.require(), row)
            core.leader.require()
            core.put_user(row)
        core.chronicle.note("admin", principal=principal, detail=f"user {name} added")
        return row

    async def delete(self, name: str, principal: str) -> None:
        """Forget a user; its clients must sign as somebody else.

        Raises:
            NotFoundError: no such user.  StandbyError: we do not lead.
        """
        core = self._core
        async with core.admin_lock:
            epoch = core.leader.require()
            if name not in core.users:
                raise NotFoundError(f"user {name[:64]!r} does not exist")
            await core.database.write(user_rows.delete, epoch, name)
            core.leader.require()
            core.drop_user(name)
        core.chronicle.note("admin", principal=principal, detail=f"user {name} deleted")


def _check(name: str, secret: str, topics: Sequence[str]) -> None:
    if not _NAME.fullmatch(name):
        raise BadRequestError(f"user {name[:64]!r}: 1 to 64 letters, digits and _ . @ -")
    if not SECRET_MIN <= len(secret.encode("utf-8", "replace")) <= SECRET_MAX:
        raise BadRequestError(f"the secret must have {SECRET_MIN} to {SECRET_MAX} bytes")
    if not secret.isprintable():
        raise BadRequestError("the secret has characters that cannot be typed")
    records.check_topics([topic for topic in topics if topic != "*"])
    if len(json.dumps(topics)) > TOPICS_CHARS_MAX:
        raise BadRequestError(f"the topics have more than {TOPICS_CHARS_MAX} characters together")

"""Moves groups' offsets in memory and in the journal together.

Memory moves first, so that concurrent pulls see it; a commit is *confirmed* only when a note of it is durable.
A note may be lost (the disk was full) while memory has moved.  Such a claim is *unsure*: its next commit writes a
note even if it moves nothing, and a saved snapshot of all offsets makes it sure again.
"""

from __future__ import annotations

from collections.abc import Callable

from tube.broker.appender import Appender
from tube.broker.holders import Claim
from tube.broker.offsets import Offsets


class Ledger:
    """Commits and resets of offsets.

    Callers: broker.service, broker.upkeep, on the reactor thread.
    """

    def __init__(self, offsets: Offsets, appender: Appender, wall_ms: Callable[[], int]) -> None:
        self._offsets = offsets
        self._appender = appender
        self._wall_ms = wall_ms
        self._unsure: dict[Claim, int] = {}
        self._count = 0

    def commit_soon(self, claim: Claim, topic_id: int, offset: int) -> None:
        """Move forward; nobody is told that it is durable."""
        note = self._offsets.commit(claim, topic_id, offset, self._wall_ms())
        if note is not None:
            self._doubt(claim)
            self._appender.note_soon(note)

    async def commit(self, claim: Claim, topic_id: int, offset: int) -> None:
        """Move forward to ``offset``, unless it is there already; durable when this returns.

        Raises:
            TubeError: it is not known to be durable.
        """
        note = self._offsets.commit(claim, topic_id, offset, self._wall_ms())
        if note is None and claim in self._unsure:
            note = self._offsets.note_of(claim)
        if note is not None:
            await self._confirm(claim, note)

    async def reset(self, claim: Claim, topic_id: int, offset: int) -> None:
        """Move in any direction; durable when this returns.

        Raises:
            TubeError: nothing has moved.
        """
        old = self._offsets.get(claim, topic_id)
        note = self._offsets.reset(claim, topic_id, offset, self._wall_ms())
        try:
            await self._confirm(claim, note)
        except BaseException:
            self._offsets.put_back(claim, topic_id, offset, old)
            raise

    def mark(self) -> int:
        """Where the doubts stand, for ``settled``."""
        return self._count

    def settled(self, mark: int) -> None:
        """A snapshot that was taken at ``mark`` is durable."""
        self._unsure = {claim: number for claim, number in self._unsure.items() if number > mark}

    def _doubt(self, claim: Claim) -> int:
        self._count += 1
        self._unsure[claim] = self._count
        return self._count

    async def _confirm(self, claim: Claim, note: bytes) -> None:
        number = self._doubt(claim)
        await self._appender.note(note)
        if self._unsure.get(claim) == number:
            del self._unsure[claim]

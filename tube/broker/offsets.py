"""Committed offsets of groups, their history of resets, and how both are written down.

A commit never moves an offset back.  A reset may; it keeps the old value for seven days so that it can be undone.
Every change is a *note*: bytes for the journal that ``replay`` understands, so a confirmed commit is as durable
as a message.  ``snapshot`` and ``restore`` are the whole state, for the file that lets the journal be cut.

Notes are JSON arrays: ``["c", group, topic, topic_id, partition_id, offset, time_ms]`` (commit),
``["r", …, offset, old, time_ms]`` (reset), ``["f", group, topic | null]`` (forget).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tube.broker.holders import Claim
from tube.errors import StoreError
from tube.values import GroupName

UNDO_MS: Final = 7 * 24 * 3600 * 1000
"""How long the value before a reset is kept."""

FORMAT: Final = 1


@dataclass(slots=True)
class Committed:
    """A group's position in one partition.  ``topic_id`` tells incarnations of a topic name apart."""

    offset: int
    topic_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Undo:
    """What an offset was before a reset (None: the group had none)."""

    old: int | None
    at_ms: int


class Offsets:
    """Committed offsets by claim.

    Callers: broker.service.  Times are wall-clock milliseconds.
    """

    def __init__(self) -> None:
        self._committed: dict[Claim, Committed] = {}
        self._undo: dict[Claim, Undo] = {}

    def get(self, claim: Claim, topic_id: int) -> int | None:
        """The committed offset, None if the group has none in this incarnation of the topic."""
        committed = self._committed.get(claim)
        return (
            committed.offset if committed is not None and committed.topic_id == topic_id else None
        )

    def commit(self, claim: Claim, topic_id: int, offset: int, at_ms: int) -> bytes | None:
        """Move forward to ``offset`` and return the note; None when that is no change."""
        current = self.get(claim, topic_id)
        if current is not None and offset <= current:
            return None
        self._committed[claim] = Committed(offset, topic_id, at_ms)
        return _note("c", claim, topic_id, offset, at_ms)

    def reset(self, claim: Claim, topic_id: int, offset: int, at_ms: int) -> bytes:
        """Move to ``offset`` in any direction, remember the old value, and return the note."""
        old = self.get(claim, topic_id)
        self._undo[claim] = Undo(old, at_ms)
        self._committed[claim] = Committed(offset, topic_id, at_ms)
        return _note("r", claim, topic_id, offset, old, at_ms)

    def note_of(self, claim: Claim) -> bytes:
        """A note of where the claim stands; it must have an offset."""
        at = self._committed[claim]
        return _note("c", claim, at.topic_id, at.offset, at.at_ms)

    def put_back(self, claim: Claim, topic_id: int, offset: int, old: int | None) -> None:
        """Take a reset to ``offset`` back, unless the claim has moved on."""
        current = self._committed.get(claim)
        if current is None or (current.topic_id, current.offset) != (topic_id, offset):
            return
        self._undo.pop(claim, None)
        if old is None:
            del self._committed[claim]
        else:
            current.offset = old

    def beyond(self, end: Callable[[int, int], int | None]) -> list[tuple[Claim, Committed, int]]:
        """Claims that are behind the end of their partition, and where that is.

        ``end(topic_id, partition_id)`` is None for a partition that is not there.
        """
        found = []
        for claim, committed in self._committed.items():
            end_offset = end(committed.topic_id, claim.partition_id)
            if end_offset is not None and committed.offset > end_offset:
                found.append((claim, committed, end_offset))
        return found

    def undo(self, claim: Claim, now_ms: int) -> int | None:
        """The offset before the last reset.

        Raises:
            StoreError: there was no reset in the last seven days.
        """
        undo = self._undo.get(claim)
        if undo is None or now_ms - undo.at_ms > UNDO_MS:
            raise StoreError(f"{claim} has not been reset in the last seven days")
        return undo.old

    def resets(self, group: GroupName) -> list[Claim]:
        """The partitions that were reset, newest value each; ``undo`` says whether it is not too late."""
        return [claim for claim in self._undo if claim.group == group]

    def forget(self, group: GroupName, topic: str | None) -> bytes:
        """Drop the offsets of a group (in one topic, or in all) and return the note."""
        self._drop(lambda claim: claim.group == group and topic in (None, claim.topic))
        return json.dumps(["f", group, topic], separators=(",", ":")).encode()

    def forget_topic(self, topic: str, topic_id: int) -> None:
        """Drop all offsets of a deleted topic; needs no note, the topic id is gone for good."""
        gone = [
            c for c, v in self._committed.items() if c.topic == topic and v.topic_id == topic_id
        ]
        self._drop(set(gone).__contains__)

    def expire(self, before_ms: int, now_ms: int) -> list[GroupName]:
        """Drop groups whose last commit is older than ``before_ms``, and undo values that ran out."""
        newest: dict[GroupName, int] = {}
        for claim, committed in self._committed.items():
            newest[claim.group] = max(newest.get(claim.group, 0), committed.at_ms)
        old = {group for group, at_ms in newest.items() if at_ms < before_ms}
        self._drop(lambda claim: claim.group in old)
        self._undo = {c: u for c, u in self._undo.items() if now_ms - u.at_ms <= UNDO_MS}
        return sorted(old)

    def groups(self) -> set[GroupName]:
        """All groups that have offsets here."""
        return {claim.group for claim in self._committed}

    def of_group(self, group: GroupName) -> Iterator[tuple[Claim, Committed]]:
        """The offsets of a group."""
        return ((claim, value) for claim, value in self._committed.items() if claim.group == group)

    def snapshot(self) -> bytes:
        """The whole state, for a file."""
        rows = [[*c, v.topic_id, v.offset, v.at_ms] for c, v in self._committed.items()]
        undo = [[*c, u.old, u.at_ms] for c, u in self._undo.items()]
        return json.dumps({"format": FORMAT, "offsets": rows, "undo": undo}).encode()

    def restore(self, snapshot: bytes, notes: Iterable[bytes]) -> None:
        """Become what ``snapshot`` says (b"" for nothing), then apply the later notes in order.

        Raises:
            StoreError: the snapshot is of a newer format or no snapshot.
        """
        self._committed.clear()
        self._undo.clear()
        if snapshot:
            try:
                state = json.loads(snapshot)
                if state["format"] != FORMAT:
                    raise StoreError(
                        f"offsets have format {state['format']}, this program knows {FORMAT}"
                    )
                for group, topic, partition_id, topic_id, offset, at_ms in state["offsets"]:
                    self._committed[Claim(group, topic, partition_id)] = Committed(
                        offset, topic_id, at_ms
                    )
                for group, topic, partition_id, old, at_ms in state["undo"]:
                    self._undo[Claim(group, topic, partition_id)] = Undo(old, at_ms)
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(f"the offset snapshot is malformed: {error}") from error
        for note in notes:
            self._apply(json.loads(note))

    def _apply(self, note: list[Any]) -> None:
        if note[0] == "f":
            self._drop(lambda claim: claim.group == note[1] and note[2] in (None, claim.topic))
            return
        kind, group, topic, topic_id, partition_id, offset, *rest = note
        claim = Claim(group, topic, partition_id)
        if kind == "r":
            old, at_ms = rest
            self._undo[claim] = Undo(old, at_ms)
            self._committed[claim] = Committed(offset, topic_id, at_ms)
            return
        current = self._committed.get(claim)
        if current is None or current.topic_id != topic_id or offset > current.offset:
            self._committed[claim] = Committed(offset, topic_id, rest[0])

    def _drop(self, gone: Callable[[Claim], bool]) -> None:
        self._committed = {c: v for c, v in self._committed.items() if not gone(c)}
        self._undo = {c: u for c, u in self._undo.items() if not gone(c)}


def _note(kind: str, claim: Claim, topic_id: int, *rest: int | None) -> bytes:
    fields = [kind, claim.group, claim.topic, topic_id, claim.partition_id, *rest]
    return json.dumps(fields, separators=(",", ":")).encode()

"""When a group has read everything that was there at a moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tube.cli.api import path_of
from tube.errors import NotFoundError
from tube.values import Partition

if TYPE_CHECKING:
    from tube.cli.api import Api


class Ends:
    """The ends of partitions at one moment, and how far the group is.

    Progress is what was read here, or what the group has committed: other members count, and so do messages
    that a filter leaves out.
    """

    def __init__(self, api: Api, group: str, targets: dict[Partition, int]) -> None:
        self._api = api
        self._group = group
        self._targets = targets

    @classmethod
    def look(cls, api: Api, topics: Iterable[str], group: str, start: str) -> Ends:
        """Ask where the partitions end now, and where the group is.

        Raises:
            NotFoundError: there is no such topic.
        """
        committed = _committed(api, group)
        targets = {}
        for topic in topics:
            for one in api.get(path_of("topics", topic, "offsets"))["partitions"]:
                partition = _partition(one)
                begin = committed.get(partition, one["first" if start == "earliest" else "next"])
                if begin < one["next"]:
                    targets[partition] = one["next"]
        return cls(api, group, targets)

    def read(self, partition: Partition, offset: int) -> None:
        """The message at ``offset`` was read."""
        if offset + 1 >= self._targets.get(partition, offset + 2):
            del self._targets[partition]

    def look_again(self) -> None:
        """Nothing came for a while: ask what the group has committed."""
        for partition, offset in _committed(self._api, self._group).items():
            self.read(partition, offset - 1)

    def reached(self) -> bool:
        """Whether everything was read."""
        return not self._targets


def _committed(api: Api, group: str) -> dict[Partition, int]:
    try:
        rows = api.get(path_of("groups", group, "offsets"))["partitions"]
    except NotFoundError:
        return {}
    return {_partition(one): one["committed"] for one in rows if one["committed"] is not None}


def _partition(one: dict[str, Any]) -> Partition:
    return Partition(one["topic"], one["broker_id"], one["partition_id"])

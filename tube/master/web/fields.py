"""The fields of a JSON body, checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tube.errors import BadRequestError
from tube.values import Partition


class Fields:
    """A body of which only ``names`` are allowed.

    Raises:
        BadRequestError: names a field that is not allowed.
    """

    def __init__(self, body: Mapping[str, Any], names: Collection[str]) -> None:
        unknown = sorted(set(body) - set(names))
        if unknown:
            raise BadRequestError(
                f"unknown field {unknown[0]!r}; there are {', '.join(sorted(names))}"
            )
        self._body = body

    def text(self, name: str) -> str | None:
        """A text, None when absent or null.

        Raises:
            BadRequestError: something else.
        """
        found: str | None = self._typed(name, str, "a text")
        return found

    def required(self, name: str) -> str:
        """A text that must be there.

        Raises:
            BadRequestError: missing, or something else.
        """
        value = self.text(name)
        if value is None:
            raise BadRequestError(f"{name}: missing")
        return value

    def whole(self, name: str) -> int | None:
        """A whole number, None when absent or null.

        Raises:
            BadRequestError: something else, also true and false.
        """
        found: int | None = self._typed(name, int, "a whole number")
        return found

    def flag(self, name: str) -> bool | None:
        """True or false, None when absent or null.

        Raises:
            BadRequestError: something else.
        """
        found: bool | None = self._typed(name, bool, "true or false")
        return found

    def table(self, name: str) -> dict[str, Any]:
        """An object that must be there.

        Raises:
            BadRequestError: missing, or something else.
        """
        found: dict[str, Any] | None = self._typed(name, dict, "an object")
        if found is None:
            raise BadRequestError(f"{name}: missing")
        return found

    def array(self, name: str, kind: type, what: str) -> list[Any] | None:
        """A list of one type, None when absent or null.

        Raises:
            BadRequestError: something else.
        """
        items: list[Any] | None = self._typed(name, list, "a list")
        for item in items or ():
            if type(item) is not kind:
                raise BadRequestError(f"{name}: expected {what}, got {_shown(item)}")
        return items

    def _typed(self, name: str, kind: type, what: str) -> Any:
        value = self._body.get(name)
        if value is not None and type(value) is not kind:  # true is an int, too
            raise BadRequestError(f"{name}: expected {what}, got {_shown(value)}")
        return value


def parse_place(topic: str, text: str) -> Partition:
    """The partition of ``broker:partition``.

    Raises:
        BadRequestError: another form.
    """
    broker_id, colon, partition_id = text.partition(":")
    digits = broker_id + partition_id
    if not (colon and broker_id and partition_id and digits.isascii() and digits.isdigit()):
        raise BadRequestError(f"partition {text[:40]!r} is not broker:partition")
    return Partition(topic, int(broker_id), int(partition_id))


def _shown(value: object) -> str:
    return repr(value)[:80]

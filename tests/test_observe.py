"""Log lines."""

from __future__ import annotations

import io
import json

from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure

from tube.observe import LineObserver


class Logged:
    """Loggers that write to a text."""

    def __init__(self, *, as_json: bool, level: LogLevel = LogLevel.info) -> None:
        self.text = io.StringIO()
        self._publisher = LogPublisher(LineObserver(self.text, as_json=as_json, level=level))

    def logger(self, namespace: str) -> Logger:
        """A logger of one room."""
        return Logger(namespace=namespace, observer=self._publisher)

    @property
    def lines(self) -> list[str]:
        """What was written."""
        return self.text.getvalue().splitlines()


def test_a_line_is_a_json_object_with_the_fields() -> None:
    """Plain values only, without Twisted's own."""
    logged = Logged(as_json=True)
    logged.logger("tube.master").info(
        "group {group}: {moved} move", group="g", moved=3, other=object()
    )
    found = json.loads(logged.lines[0])
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info",
        "room": "tube.master",
        "message": "group g: 3 move",
        "group": "g",
        "moved": 3,
    }


def test_a_failure_has_its_traceback() -> None:
    """In a field, or below the line."""
    for as_json in (True, False):
        logged = Logged(as_json=as_json)
        logged.logger("tube.master").failure("bad", failure=Failure(KeyError("lost")))
        assert "KeyError: 'lost'" in logged.text.getvalue()


def test_what_is_less_important_is_left_out() -> None:
    """Debug lines, and the small talk of libraries."""
    logged = Logged(as_json=False)
    logged.logger("tube.net").debug("a request")
    logged.logger("twisted.internet").info("Main loop terminated.")
    logged.logger("tube.net").info("heard")
    logged.logger("twisted.internet").warn("look")
    assert [line.split(maxsplit=2)[2] for line in logged.lines] == [
        "tube.net: heard",
        "twisted.internet: look",
    ]


def test_a_reader_that_went_away_stops_nothing() -> None:
    """A log must not stop the server."""
    logged = Logged(as_json=False)
    logged.text.close()
    logged.logger("tube.net").warn("nobody hears")

"""Log lines: JSON on a pipe, text on a terminal."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

_PLAIN = (str, int, float, bool)
_LEVELS = {
    LogLevel.debug: 0,
    LogLevel.info: 1,
    LogLevel.warn: 2,
    LogLevel.error: 3,
    LogLevel.critical: 4,
}


@implementer(ILogObserver)
class LineObserver:
    """Writes one line per event of at least ``level``."""

    def __init__(self, stream: TextIO, *, as_json: bool, level: LogLevel = LogLevel.info) -> None:
        self._stream = stream
        self._json = as_json
        self._least = _LEVELS[level]

    def __call__(self, event: LogEvent) -> None:
        """Write the event, unless it is less important than asked for."""
        level = event.get("log_level", LogLevel.info)
        # Twisted says "starting on 8715", "Main loop terminated": only its warnings are for us.
        ours = str(event.get("log_namespace", "")).startswith("tube")
        least = self._least if ours else max(self._least, _LEVELS[LogLevel.warn])
        if _LEVELS.get(level, 1) < least:
            return
        at = datetime.fromtimestamp(event.get("log_time", 0), UTC).isoformat(
            timespec="milliseconds"
        )
        message = formatEvent(event)
        failure = event.get("log_failure")
        trace = failure.getTraceback() if failure is not None else ""
        if self._json:
            fields: dict[str, Any] = {
                "time": at,
                "level": level.name,
                "room": event.get("log_namespace", ""),
                "message": message,
            }
            fields |= {
                k: v
                for k, v in event.items()
                if not k.startswith("log_") and k not in fields and isinstance(v, _PLAIN)
            }
            if trace:
                fields["error"] = trace
            line = json.dumps(fields, ensure_ascii=False)
        else:
            line = f"{at} {level.name:5} {event.get('log_namespace', '')}: {message}"
            line += f"\n{trace}" if trace else ""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads: a log must not stop the server
            pass


def begin_logging(stream: TextIO | None = None, *, level: LogLevel = LogLevel.info) -> None:
    """Send all events to ``stream`` (standard error unless said otherwise)."""
    target = stream if stream is not None else sys.stderr
    observer = LineObserver(target, as_json=not target.isatty(), level=level)
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)

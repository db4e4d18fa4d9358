"""Which answer belongs to which open call.

A caller opens a call, sends it with the serial number it got, and closes it when the answer comes
or its time is over.  An answer whose call is not open any more is late or invented: ignore it.
"""

from __future__ import annotations

import heapq

from tube.errors import BufferFullError
from tube.limits import IN_FLIGHT_MAX

SERIAL_MAX = 2**31 - 1
"""Java reads serial numbers as signed 32-bit integers (spec 1.1); we stay positive."""


class Calls:
    """The open calls of one connection.  Times are seconds of one monotonic clock."""

    def __init__(self, count_max: int = IN_FLIGHT_MAX, first_serial: int = 1) -> None:
        self._count_max = count_max
        self._next = first_serial
        self._deadlines: dict[int, float] = {}  # by serial
        self._queue: list[tuple[float, int]] = []  # heap; closed calls are dropped late

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def next_deadline_s(self) -> float | None:
        """When ``expire`` has something to do at the earliest, None when nothing is open."""
        self._drop_closed()
        return self._queue[0][0] if self._queue else None

    def open(self, now_s: float, timeout_s: float) -> int:
        """Return the serial number of a new call, in 1..2**31-1, that no open call has.

        Raises:
            BufferFullError: as many calls are open as may be.
        """
        if len(self._deadlines) >= self._count_max:
            raise BufferFullError(f"{len(self)} calls are open, limit is {self._count_max}")
        while self._next in self._deadlines:  # after a wrap, a call may still be open
            self._next = self._next % SERIAL_MAX + 1
        serial = self._next
        self._next = serial % SERIAL_MAX + 1
        self._deadlines[serial] = now_s + timeout_s
        if len(self._queue) > 2 * self._count_max:  # quick answers leave their entries behind
            self._queue = [(at_s, serial) for serial, at_s in self._deadlines.items()]
            heapq.heapify(self._queue)
        else:
            heapq.heappush(self._queue, (now_s + timeout_s, serial))
        return serial

    def close(self, serial: int) -> bool:
        """Say whether the call was open; it is not any more."""
        return self._deadlines.pop(serial, None) is not None

    def expire(self, now_s: float) -> list[int]:
        """Close the calls whose time is over and return their serial numbers, oldest first."""
        expired = []
        self._drop_closed()
        while self._queue and self._queue[0][0] <= now_s:
            serial = heapq.heappop(self._queue)[1]
            del self._deadlines[serial]
            expired.append(serial)
            self._drop_closed()
        return expired

    def close_all(self) -> list[int]:
        """Close every call, as when the connection is lost, and return their serial numbers."""
        serials = list(self._deadlines)
        self._deadlines.clear()
        self._queue.clear()
        return serials

    def _drop_closed(self) -> None:
        """Make the first entry of the queue that of an open call."""
        queue, deadlines = self._queue, self._deadlines
        while queue and deadlines.get(queue[0][1]) != queue[0][0]:
            heapq.heappop(queue)

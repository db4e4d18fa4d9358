"""What a data directory is: who owns it, in which format, and the room kept aside.

``identity`` is JSON: ``{"format": 1, "broker_id": 1, "home": 305419896}``.  ``lock`` is held by the
one process that has the directory open.  ``reserve`` is an allocated file that is given up when there
is no room to start.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Final

from tube.errors import DiskFullError, StoreError, StoreInUseError
from tube.log.files import (
    FULL,
    FileSystem,
    OpenFile,
    make_directory,
    replace_file,
    sync_directory,
)

FORMAT: Final = 1
IDENTITY: Final = "identity"
LOCK: Final = "lock"
RESERVE: Final = "reserve"
JOURNAL: Final = "journal"
TOPICS: Final = "topics"
DELETED: Final = "deleted-"
"""Begins the name of a topic's directory that is being deleted."""


def take_lock(disk: FileSystem, root: Path) -> OpenFile:
    """Lock the directory for this process; the lock ends with the file.

    Raises:
        StoreInUseError: another process has it.
    """
    file = OpenFile(disk, str(root / LOCK), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        raise StoreInUseError(
            f"{root} is in use by another process; stop that broker or give this one another"
            " data directory"
        ) from None
    return file


def read_identity(root: Path) -> tuple[int, int]:
    """Return the broker id and the home of the directory.

    Raises:
        StoreError: the identity file is damaged or missing.
        StoreInUseError: the directory's format is newer than this program.
    """
    path = root / IDENTITY
    try:
        facts = json.loads(path.read_text())
        form, broker_id, home = (int(facts[k]) for k in ("format", "broker_id", "home"))
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; restore it, the log cannot be read without") from None
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path} is damaged; restore it from a copy of the directory") from None
    if form > FORMAT:
        raise StoreInUseError(
            f"{root} has format {form}, this program reads up to {FORMAT}; install a newer release"
        )
    return broker_id, home


def claim(disk: FileSystem, root: Path, broker_id: int) -> int:
    """Make the directory this broker's, or check that it is; return its home.

    Raises:
        StoreError: the identity file is damaged or missing.
        StoreInUseError: it belongs to another broker or a newer format.
    """
    path = root / IDENTITY
    if not path.exists() and not (root / TOPICS).exists() and not (root / JOURNAL).exists():
        home = int.from_bytes(disk.random_bytes(4), "little")
        facts = {"format": FORMAT, "broker_id": broker_id, "home": home}
        replace_file(disk, path, json.dumps(facts).encode() + b"\n")
    owner, home = read_identity(root)
    if owner != broker_id:
        raise StoreInUseError(
            f"{root} belongs to broker {owner}, this is broker {broker_id}; correct the broker id"
            " or the data directory"
        )
    for name in (JOURNAL, TOPICS):
        make_directory(disk, root / name)
    return home


class Reserve:
    """Room on the disk kept aside for the next start.

    While it is given up, nothing but the broker's notes is written; it comes back by itself when
    there is room for twice as much.

    Callers: the disk thread.
    """

    def __init__(self, disk: FileSystem, root: Path, size: int) -> None:
        self._disk = disk
        self._path = root / RESERVE
        self._size = size
        self.is_there = size == 0 or self._path.exists()

    def give_up(self) -> bool:
        """Free the room; False when there was none."""
        if self._size == 0 or not self.is_there:
            return False
        self._disk.unlink(str(self._path))
        self.is_there = False
        return True

    def restore(self) -> bool:
        """Set the room aside again if there is enough; whether it is there now."""
        if self.is_there:
            return True
        root = self._path.parent
        if self._disk.free_bytes(root) < 2 * self._size:
            return False
        fresh = str(self._path) + ".new"
        try:
            file = OpenFile(self._disk, fresh, os.O_RDWR | os.O_CREAT)
            self._disk.allocate(file.fd, 0, self._size)
            self._disk.rename(fresh, str(self._path))
            sync_directory(self._disk, root)
        except OSError as e:
            if e.errno in FULL and os.path.exists(fresh):
                self._disk.unlink(fresh)
            return False
        self.is_there = True
        return True

    def require(self) -> None:
        """Raise DiskFullError unless the room is set aside."""
        if not self.restore():
            raise DiskFullError(
                f"the disk of {self._path.parent} is full",
                hint=f"free at least {2 * self._size} bytes",
            )

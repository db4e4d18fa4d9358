"""The calls to the operating system that the log makes, and files that close themselves.

``FileSystem`` is the seam for fault injection: its attributes *are* the functions of ``os``, so it costs an
attribute look-up; a test's subclass replaces single ones.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors that say the disk has no room."""

_JOIN_BYTES_MAX: Final = 1024 * 1024
"""Up to here one copy and one plain write beat a vector of small pieces."""

_PIECES_MAX: Final = 1024
"""IOV_MAX of Linux."""


class FileSystem:
    """The operating system's calls."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(os.fdatasync)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    statvfs = staticmethod(os.statvfs)
    allocate = staticmethod(os.posix_fallocate)
    random_bytes = staticmethod(os.urandom)

    def free_bytes(self, directory: Path) -> int:
        """Return what an ordinary user may still write."""
        facts = self.statvfs(directory)
        return facts.f_bavail * facts.f_frsize


class OpenFile:
    """An open file that is closed when nobody refers to it any more.

    So a reader may go on with a file that was dropped or closed for room, and no descriptor is
    ever reused under it.  Keep the object in a variable while its ``fd`` is in use.
    """

    __slots__ = ("_close", "fd")

    def __init__(self, disk: FileSystem, path: str, flags: int) -> None:
        self._close: Callable[[int], None] = disk.close
        self.fd = -1
        self.fd = disk.open(path, flags | os.O_CLOEXEC, 0o640)

    def close(self) -> None:
        """Close the file now; nobody may use it meanwhile."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._close(fd)

    def __del__(self) -> None:
        self.close()


class Closable(Protocol):
    """Something that keeps a file open until told to let it go."""

    used: bool

    def let_go(self) -> None:
        """Forget the open file."""


class OpenFiles:
    """A bound on open files: the ones not used for longest are let go (second-chance order).

    Using a file only sets its ``used``; the lock is taken when one is opened.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._files: deque[Closable] = deque()
        self.lock = threading.Lock()

    def opened(self, file: Closable) -> None:
        """Count ``file``, and let others go if that is too many.  Call with ``lock`` held."""
        self._files.append(file)
        file.used = True
        while len(self._files) > self._limit:
            oldest = self._files.popleft()
            if oldest.used and oldest is not file:
                oldest.used = False
                self._files.append(oldest)
            elif oldest is not file:
                oldest.let_go()
            else:
                file.used = False  # all others were used: go round once more
                self._files.append(file)

    def let_all_go(self) -> None:
        """Let every file go, at the end or after a start that failed."""
        with self.lock:
            while self._files:
                self._files.popleft().let_go()

    def __len__(self) -> int:
        return len(self._files)


def open_files_limit() -> int:
    """Return half of what this process may open: the other half is for sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(soft // 2, 8192)) if soft > 0 else 8192


def write_all(disk: FileSystem, fd: int, pieces: Sequence[bytes | memoryview], at: int) -> int:
    """Write all pieces one behind the other at ``at``, however short the system writes.

    Returns the number of bytes.
    """
    total = sum(map(len, pieces))
    if total <= _JOIN_BYTES_MAX or len(pieces) == 1:
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        _write_rest(disk, fd, whole, at, disk.pwrite(fd, whole, at))
        return total
    for i in range(0, len(pieces), _PIECES_MAX):
        some = pieces[i : i + _PIECES_MAX]
        length = sum(map(len, some))
        written = disk.pwritev(fd, some, at)
        if written < length:
            _write_rest(disk, fd, b"".join(some), at, written)
        at += length
    return total


def _write_rest(
    disk: FileSystem, fd: int, content: bytes | memoryview, at: int, written: int
) -> None:
    """Go on after ``written`` bytes of ``content`` until all are written."""
    while written < len(content):
        step = disk.pwrite(fd, memoryview(content)[written:], at + written)
        if step <= 0:
            raise OSError(errno.ENOSPC, "the system writes nothing")
        written += step


def sync_directory(disk: FileSystem, directory: Path) -> None:
    """Make creations, renames and deletions in ``directory`` durable."""
    file = OpenFile(disk, str(directory), os.O_RDONLY | os.O_DIRECTORY)
    disk.fsync(file.fd)


def make_directory(disk: FileSystem, directory: Path) -> None:
    """Create ``directory`` and its parents durably; existing ones are fine."""
    if directory.is_dir():
        return
    make_directory(disk, directory.parent)
    disk.mkdir(str(directory), 0o750)
    sync_directory(disk, directory.parent)


def create_file(disk: FileSystem, path: Path, content: bytes = b"") -> OpenFile:
    """Create or empty the file durably, its directory entry included."""
    file = OpenFile(disk, str(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        if content:
            write_all(disk, file.fd, [content], 0)
        disk.fsync(file.fd)
        sync_directory(disk, path.parent)
    except OSError:
        with suppress(OSError):
            disk.unlink(str(path))
        raise
    return file


def replace_file(disk: FileSystem, path: Path, content: bytes) -> None:
    """Let the file have the new content or keep the old one, whatever happens."""
    fresh = path.with_name(path.name + ".new")
    create_file(disk, fresh, content)
    disk.rename(str(fresh), str(path))
    sync_directory(disk, path.parent)


def remove_tree(disk: FileSystem, directory: Path) -> None:
    """Delete ``directory`` with all it holds; links are not followed."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(disk, Path(entry.path))
        else:
            disk.unlink(entry.path)
    disk.rmdir(str(directory))

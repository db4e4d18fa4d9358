"""Stores in directories of their own, and disks that fail where a test says."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from tube.log.files import FileSystem
from tube.log.store import Append, LogOptions, LogStore, Outcome

TOPIC = 7


class FailingDisk(FileSystem):
    """A disk whose calls fail for files with ``match`` in their path, while ``error`` is set."""

    def __init__(self) -> None:
        self.error: dict[str, int] = {}
        self.match = ""
        self.short = 0
        self.calls: list[str] = []

    def _meet(self, call: str, fd: int | None = None, path: str = "") -> None:
        if fd is not None:
            path = os.readlink(f"/proc/self/fd/{fd}")
        if call in self.error and self.match in path:
            self.calls.append(call)
            number = self.error[call]
            raise OSError(number, os.strerror(number))

    def pwrite(self, fd, content, at):  # type: ignore[override]
        self._meet("pwrite", fd)
        if self.short:
            content = memoryview(content)[: self.short]
        return os.pwrite(fd, content, at)

    def pwritev(self, fd, pieces, at):  # type: ignore[override]
        self._meet("pwrite", fd)
        if self.short:
            return os.pwrite(fd, memoryview(b"".join(pieces))[: self.short], at)
        return os.pwritev(fd, pieces, at)

    def fdatasync(self, fd):  # type: ignore[override]
        self._meet("fdatasync", fd)
        os.fdatasync(fd)

    def ftruncate(self, fd, size):  # type: ignore[override]
        self._meet("ftruncate", fd)
        os.ftruncate(fd, size)

    def open(self, path, flags, mode=0o777):  # type: ignore[override]
        if flags & os.O_CREAT:
            self._meet("create", path=path)
        return os.open(path, flags, mode)

    def pread(self, fd, length, at):  # type: ignore[override]
        self._meet("pread", fd)
        return os.pread(fd, length, at)

    def statvfs(self, path):  # type: ignore[override]
        facts = os.statvfs(path)
        if "statvfs" in self.error:
            return os.statvfs_result((*facts[:3], 0, 0, *facts[5:10]))
        return facts

    def fill(self) -> None:
        """Let the disk be full."""
        self.error = dict.fromkeys(("pwrite", "create", "statvfs"), errno.ENOSPC)

    def heal(self) -> None:
        """Let every call succeed again."""
        self.error = {}
        self.match = ""
        self.short = 0


def options(**changes) -> LogOptions:
    """Return options with a small reserve."""
    return LogOptions(**{"reserve_bytes": 64 * 1024, **changes})


def opened(directory: Path, *, partitions: int = 1, **changes) -> LogStore:
    """Open a store with some partitions of one topic."""
    store = LogStore.open(directory, broker_id=1, options=options(**changes), now_ms=0)
    for partition in range(partitions):
        store.create(TOPIC, partition)
    return store


def run(text: str, *, partition: int = 0, durable: bool = True, at_ms: int = 0, **more) -> Append:
    """Return an append of one message."""
    return Append(TOPIC, partition, text.encode(), 1, durable, at_ms, at_ms, **more)


def put(store: LogStore, *texts: str, **more) -> list[Outcome]:
    """Commit messages, each in a window of its own."""
    return [store.commit([run(text, **more)])[0] for text in texts]


def texts(
    store: LogStore, offset: int = 0, *, partition: int = 0, gaps: list | None = None
) -> list[str]:
    """Read everything from an offset on, in small reads."""
    found = []
    while True:
        result = store.read(TOPIC, partition, offset, 100)
        found += [bytes(block.payload).decode() for block in result.blocks]
        if gaps is not None:
            gaps += result.gaps
        if result.next_offset == offset:
            return found
        offset = result.next_offset


def killed(store: LogStore, directory: Path) -> Path:
    """Return a copy of the directory as a killed process leaves it; the store goes on."""
    copy = directory.with_name(directory.name + "-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    return copy


def segments(directory: Path, partition: int = 0) -> list[Path]:
    """Return the segment files, oldest first."""
    return sorted((directory / "topics" / str(TOPIC) / str(partition)).glob("*.seg"))


def journals(directory: Path) -> list[Path]:
    """Return the journal files, oldest first."""
    return sorted((directory / "journal").glob("*.jnl"))


def flip(path: Path, position: int) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)

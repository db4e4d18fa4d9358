"""A seeded simulation: random use, then a power cut that loses what was never synced.

The design must survive: any mix of old and new bytes in pages written since their file's last sync,
files cut anywhere behind their synced end, full disks, and a crash between any two calls of the store.
Entries of directories are taken as durable: the store syncs each directory at once.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.log.disks import TOPIC, FailingDisk, opened, run
from tube.errors import DiskFullError
from tube.log.inspect import verify
from tube.log.store import Appended, LogStore, Retention

PAGE = 64


class ForgetfulDisk(FailingDisk):
    """A disk that remembers what each file held at its last sync."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: dict[str, bytes] = {}

    def _remember(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isfile(path):
            self.synced[path] = Path(path).read_bytes()

    def fdatasync(self, fd):  # type: ignore[override]
        super().fdatasync(fd)
        self._remember(fd)

    def fsync(self, fd):  # type: ignore[override]
        os.fsync(fd)
        self._remember(fd)

    def rename(self, old, new):  # type: ignore[override]
        os.rename(old, new)
        if old in self.synced:
            self.synced[new] = self.synced.pop(old)

    def cut_power(self, directory: Path, copy: Path, rng: random.Random) -> None:
        """Copy the directory as it may be after a power cut."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        for path in copy.rglob("*"):
            if path.is_file():
                source = str(directory / path.relative_to(copy))
                path.write_bytes(_mixed(self.synced.get(source, b""), path.read_bytes(), rng))


def _mixed(synced: bytes, now: bytes, rng: random.Random) -> bytes:
    """Return what a file may hold that was synced as one content and has another since."""
    if synced == now or rng.random() < 0.3:
        return now
    size = rng.choice((len(synced), len(now), rng.randint(*sorted((len(synced), len(now))))))
    old = synced.ljust(size, b"\0")[:size]
    new = now.ljust(size, b"\0")[:size]
    part = rng.random()
    return b"".join(
        (new if rng.random() < part else old)[at : at + PAGE] for at in range(0, size, PAGE)
    )


class Life:
    """A store in use, what it acknowledged, and the broker's side of its checkpoints."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.disk = ForgetfulDisk()
        self.durable: dict[int, dict[int, str]] = {0: {}, 1: {}, 2: {}}
        self.snapshot: list[bytes] = []
        self.notes: list[bytes] = []
        self.count = 0
        self.store = self.open()

    def open(self) -> LogStore:
        return opened(
            self.root,
            partitions=3,
            disk=self.disk,
            segment_bytes=1500,
            index_interval_bytes=200,
            reserve_bytes=0,
        )

    def append(self) -> None:
        """Commit a window; now and then on a full disk."""
        rng = self.rng
        appends = []
        for _ in range(rng.randrange(5)):
            self.count += 1
            text = f"{self.count}." * rng.randint(1, 60)
            appends.append(run(text, partition=rng.randrange(3), durable=rng.random() < 0.7))
        notes = [f"note {self.count}".encode()] if rng.random() < 0.3 else []
        if rng.random() < 0.1:
            self.disk.error = {rng.choice(("pwrite", "create")): 28}
            self.disk.match = rng.choice((".seg", ".jnl", f"topics/{TOPIC}/1"))
        try:
            outcomes = self.store.commit(appends, notes)
        except DiskFullError:
            outcomes = []
            notes = []
        self.disk.heal()
        self.notes += notes
        for append, outcome in zip(appends, outcomes, strict=False):
            assert isinstance(outcome, Appended)
            if append.durable:
                text = append.payload.decode()
                self.durable[append.partition_id][outcome.base_offset] = text

    def checkpoint(self) -> None:
        """Checkpoint, or leave one half done."""
        checkpoint = self.store.begin_checkpoint()
        snapshot = list(self.notes)
        if self.rng.random() < 0.3:
            return
        if self.rng.random() < 0.5:
            self.append()
        self.snapshot = snapshot
        if self.rng.random() < 0.2:
            return
        self.store.finish_checkpoint(checkpoint)

    def retain(self) -> None:
        """Drop old segments of all partitions."""
        for dropped in self.store.retain({TOPIC: Retention(bytes=4000)}, 0):
            kept = self.durable[dropped.partition_id]
            for offset in [offset for offset in kept if offset < dropped.next_offset]:
                del kept[offset]

    def renew(self) -> None:
        """Delete the topic and begin it anew."""
        self.store.delete(TOPIC)
        for partition in range(3):
            self.store.create(TOPIC, partition)
            self.durable[partition] = {}

    def crash(self) -> None:
        """Cut the power, or stop in order, and come back."""
        if self.rng.random() < 0.2:
            self.store.close()
        copy = self.root.with_name("copy")
        self.disk.cut_power(self.root, copy, self.rng)
        self.store._lock.close() if self.store._lock else None
        shutil.rmtree(self.root)
        copy.rename(self.root)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        self.disk.synced = {str(path): path.read_bytes() for path in files}
        self.store = self.open()

    def check(self) -> None:
        """Everything acknowledged as durable is there, at its offset, and the notes are."""
        for partition, expected in self.durable.items():
            bounds = self.store.bounds(TOPIC, partition)
            got: dict[int, str] = {}
            offset = bounds.first_offset
            while offset < bounds.next_offset:
                result = self.store.read(TOPIC, partition, offset, self.rng.randint(1, 2000))
                got |= {b.base_offset: bytes(b.payload).decode() for b in result.blocks}
                assert result.next_offset > offset
                offset = result.next_offset
            assert expected.items() <= got.items()

    def check_notes(self) -> None:
        """The broker's snapshot and the recovered notes make up all notes, some twice."""
        recovered = self.store.recovery.notes
        assert set(self.notes) <= {*self.snapshot, *recovered}
        assert recovered == sorted(recovered, key=lambda note: int(note.split()[1]))


def live(root: Path, seed: int) -> None:
    """Use a store for some lives."""
    rng = random.Random(seed)
    life = Life(root, rng)
    for _ in range(rng.randint(1, 5)):
        for _ in range(rng.randrange(40)):
            action = rng.choices(
                (life.append, life.checkpoint, life.retain, life.renew), (30, 3, 1, 0.3)
            )[0]
            action()
        life.check()
        life.crash()
        life.check()
        life.check_notes()
    life.store.close()
    list(verify(root))
    shutil.rmtree(root)


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_a_power_cut_takes_nothing_acknowledged(tmp_path, start):
    """Whatever mix of synced and unsynced bytes is left, durable messages and notes come back."""
    for seed in range(start, start + int(os.environ.get("SEEDS", "20"))):
        try:
            live(tmp_path / "d", seed)
        except BaseException as e:
            e.add_note(f"seed {seed}")
            raise

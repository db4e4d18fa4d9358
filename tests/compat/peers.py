"""Programs that use a TubeMQ client as tests tell them.

One JSON request a line on their standard input, one JSON answer or event a line on their standard output.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ANSWER_S = 60.0

Facts = dict[str, Any]


def sha(body: bytes) -> str:
    """What peers say about a body."""
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def outgoing(
    topic: str,
    body: bytes,
    *,
    type: str = "",  # noqa: A002  the field's word
    time: str = "",
    attributes: dict[str, str] | None = None,
) -> Facts:
    """A message for ``send``."""
    message: Facts = {"topic": topic, "body": base64.b64encode(body).decode()}
    if type:
        message |= {"type": type, "time": time}
    if attributes:
        message["attributes"] = attributes
    return message


class Peer:
    """A process with one client library; ``kind`` names the library."""

    def __init__(self, kind: str, command: Sequence[str], log: Path) -> None:
        self.kind = kind
        self.events: list[Facts] = []
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Facts]] = {}
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PEER_LOG": str(log.with_suffix(".client.log"))},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            facts = json.loads(line)
            if "event" in facts:
                facts["seen_s"] = time.monotonic()
                self.events.append(facts)
            else:
                self._waiting.pop(facts["id"]).set_result(facts)

    def begin(self, do: str, name: str, **fields: object) -> Future[Facts]:
        """Ask for something."""
        number = next(self._ids)
        answer: Future[Facts] = Future()
        self._waiting[number] = answer
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"id": number, "do": do, "name": name, **fields}) + "\n"
        )
        self.process.stdin.flush()
        return answer

    def ask(self, do: str, name: str, **fields: object) -> Facts:
        """Ask for something and wait for the answer; it must be good."""
        answer = self.try_(do, name, **fields)
        assert answer["ok"], answer
        return answer

    def try_(self, do: str, name: str, **fields: object) -> Facts:
        """Ask for something and wait for the answer, good or bad."""
        return self.begin(do, name, **fields).result(ANSWER_S)

    def batches(self, name: str) -> list[Facts]:
        """What a consumer was given, oldest first."""
        events = list(self.events)
        return [e for e in events if e["event"] == "batch" and e["name"] == name]

    def messages(self, name: str) -> list[Facts]:
        """All messages that a consumer was given."""
        return [message for batch in self.batches(name) for message in batch["messages"]]

    def bodies(self, name: str) -> list[bytes]:
        """Their bodies, which must be short."""
        return [base64.b64decode(message["body"]) for message in self.messages(name)]

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self._ended()

    def close(self) -> None:
        """End it: a peer ends when its input does."""
        if self.process.poll() is None:
            self.process.kill()
        if not self._log.closed:
            self._ended()

    def _ended(self) -> None:
        self.process.wait(10)
        self._reading.join(5)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # what was not sent any more
                stream.close()

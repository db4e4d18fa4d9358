"""Our own client as a peer, see ``peers.py``: ``python -m tests.compat.tube_peer``."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import threading
from typing import Any

from tube.client import Client, ClientOptions, ConsumerOptions
from tube.client.values import Message
from tube.errors import StaleAssignmentError, TubeError

Facts = dict[str, Any]

_saying = threading.Lock()


def say(facts: Facts) -> None:
    """One line."""
    with _saying:
        print(json.dumps(facts), flush=True)


class Sender:
    """A producer."""

    def __init__(self, asked: Facts) -> None:
        self._client = Client(f"tube://{asked['master']}")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._acknowledged: list[str] = []
        self._failed: list[str] = []
        self._producers = {name: self._client.producer(name) for name in asked["topics"]}

    def send(self, asked: Facts) -> Facts:
        """Send and wait."""
        futures = []
        for given in asked["messages"]:
            producer = self._producers[given["topic"]]
            body = base64.b64decode(given["body"])
            futures.append(
                producer.send(body, filter=given.get("type"), headers=given.get("attributes"))
            )
        results = []
        for future in futures:
            try:
                at = future.result(30)
                where = f"{at.partition.broker_id}:{at.topic}:{at.partition.partition_id}"
                results.append({"success": True, "code": 200, "partition": where})
            except TubeError as error:
                results.append({"success": False, "code": error.code, "text": str(error)})
        return {"results": results}

    def flood(self, asked: Facts) -> Facts:
        """Send until told to stop."""
        self._thread = threading.Thread(target=self._run, args=(asked,), daemon=True)
        self._thread.start()
        return {}

    def _run(self, asked: Facts) -> None:
        number = 0
        while not self._stopping.wait(asked.get("pace_ms", 5) / 1000):
            value = f"{asked['prefix']}{number}"
            number += 1
            try:
                self._producers[asked["topic"]].send(value.encode()).result(30)
                self._acknowledged.append(value)
            except TubeError as error:
                self._failed.append(f"{value} {error}")

    def flood_stop(self, _asked: Facts) -> Facts:
        """Stop, and say what was acknowledged."""
        self._stopping.set()
        assert self._thread is not None
        self._thread.join(40)
        return {"acknowledged": self._acknowledged, "failed": self._failed}

    def close(self, _asked: Facts) -> Facts:
        """Say goodbye."""
        self._client.close()
        return {}


class Reader:
    """A consumer that reads by itself."""

    def __init__(self, asked: Facts) -> None:
        self._name = asked["name"]
        self._client = Client(f"tube://{asked['master']}", ClientOptions(heartbeat_s=1.0))
        filters = {topic: items for topic, items in asked["topics"].items() if items}
        start = "latest" if asked.get("position") == "latest" else "earliest"
        self._consumer = self._client.consumer(
            list(asked["topics"]),
            asked["group"],
            ConsumerOptions(start=start, ack_interval_s=0.02),
            filters=filters or None,
        )
        self.client_id = self._consumer.client_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.batches(50, 0.1):
                at = message.partition
                key = f"{at.broker_id}:{at.topic}:{at.partition_id}"
                batch = {"partition": key, "offset": message.offset, "messages": [told(message)]}
                say({"event": "batch", "name": self._name, **batch})
                try:
                    self._consumer.ack(message)
                    success = True
                except StaleAssignmentError:
                    success = False
                confirmed = {"partition": key, "success": success}
                say({"event": "confirmed", "name": self._name, **confirmed})

    def close(self, _asked: Facts) -> Facts:
        """Leave."""
        self._stopping.set()
        self._thread.join(20)
        self._client.close()
        return {}


def told(message: Message) -> Facts:
    """What is said about a message."""
    attributes = [f"{name}={value}" for name, value in sorted(message.headers.items())]
    if message.filter is not None:
        attributes.insert(0, f"$msgType$={message.filter}")
    facts: Facts = {
        "topic": message.topic,
        "size": len(message.value),
        "sha256": base64.b64encode(hashlib.sha256(message.value).digest()).decode(),
        "attributes": ",".join(attributes),
        "type": message.filter,
    }
    if len(message.value) <= 200:
        facts["body"] = base64.b64encode(message.value).decode()
    return facts


class Answers:
    """Does what is asked."""

    def __init__(self) -> None:
        self._made: dict[str, Sender | Reader] = {}

    def answer(self, asked: Facts) -> None:
        """Do it and say what came of it."""
        try:
            answer = {"ok": True, **self._act(asked)}
        except Exception as error:
            answer = {"ok": False, "error": repr(error)}
        say({**answer, "id": asked["id"]})

    def _act(self, asked: Facts) -> Facts:
        if asked["do"] == "open_producer":
            self._made[asked["name"]] = Sender(asked)
            return {"topics": asked["topics"]}
        if asked["do"] == "open_consumer":
            reader = Reader(asked)
            self._made[asked["name"]] = reader
            return {"client_id": reader.client_id}
        answer: Facts = getattr(self._made[asked["name"]], asked["do"])(asked)
        return answer


def main() -> None:
    """Answer until nobody asks any more."""
    answers = Answers()
    say({"event": "ready"})
    for line in sys.stdin:
        threading.Thread(target=answers.answer, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()

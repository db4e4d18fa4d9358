"""``tube.testing``: a whole cluster for users' own tests."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import tempfile, time
from pathlib import Path
from tube.testing import Cluster

with Cluster(topics={"orders": 2}, brokers=2) as cluster:
    cluster.create_topic("more", partitions=1, durable=False)
    with cluster.client() as client:
        receipts = client.producer("orders").send_many([b"1", b"2", b"3"])
        assert not client.producer("more").send(b"x").result(5).durable
        assert all(receipt.durable for receipt in receipts)
        cluster.stop_broker(2)
        cluster.start_broker(2)
        consumer = client.consumer(["orders"], "g1")
        got = []
        while len(got) < 3:
            got += consumer.batches(10, 2)
        assert sorted(m.value for m in got) == [b"1", b"2", b"3"]
    directory = cluster._directory
assert not directory.exists()
try:
    cluster.url
except RuntimeError as error:
    assert "not started" in str(error)
with Cluster() as again, again.client():
    pass
print("fine")
"""


def test_a_program_gets_a_cluster_of_its_own() -> None:
    """Topics, clients, brokers that stop and start; afterwards nothing is left, and another may be started."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout.strip(), done.returncode) == ("fine", 0), done.stderr

"""Apache TubeMQ's own master and broker, from the jars that Maven Central has."""

from __future__ import annotations

import socket
import subprocess
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.compat import toolchains
from tests.faults.processes import wait_until

TOKEN: Final = "abc"
READY_S: Final = 60.0

MASTER_INI = """[master]
hostName=127.0.0.1
port={master}
webPort={web}
consumerBalancePeriodMs=1000
firstBalanceDelayAfterStartMs=1000
confModAuthToken={token}
webResourcePath={resources}
[meta_bdb]
repGroupName=tests
repNodeName=one
repNodePort={replication}
repHelperHost=127.0.0.1:{replication}
metaDataPath={directory}/meta
"""
BROKER_INI = """[broker]
brokerId=1
hostName=127.0.0.1
port={broker}
webPort={broker_web}
masterAddressList=127.0.0.1:{master}
primaryPath={directory}/data
maxSegmentSize=134217728
maxIndexSegmentSize=22020096
transferSize=524288
loadMessageStoresInParallel=true
consumerRegTimeoutMs=35000
heartbeatPeriodMs=1000
[audit]
auditEnable=false
[prometheus]
promEnable=false
"""


class JavaServers:
    """One master, one broker, and the HTTP API to set them up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._classes = toolchains.server_classes()
        names = ("master", "web", "replication", "broker", "broker_web")
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._programs: list[subprocess.Popen[bytes]] = []
        for name in ("meta", "data", "resources/templates/layout", "resources/templates/screen"):
            (directory / name).mkdir(parents=True)
        # The web pages are not in the jar.  The API looks whether its page exists, acts, and fails to print it.
        pages = ("velocity.properties", "templates/screen/webapi.vm", "templates/layout/default.vm")
        for page in pages:
            (directory / "resources" / page).touch()

    @property
    def url(self) -> str:
        """What clients are given."""
        return f"tube://127.0.0.1:{self.ports['master']}"

    def start(self) -> None:
        """Start both; the broker is told to go online."""
        self._run("MasterStartup", MASTER_INI)
        wait_until(lambda: _listens(self.ports["web"]), READY_S, "the master's web port")
        broker = {"brokerId": 1, "brokerIp": "127.0.0.1", "brokerPort": self.ports["broker"]}
        more = {"deletePolicy": "delete,168h", "numPartitions": 2, "unflushThreshold": 1000}
        more |= {"unflushInterval": 10000, "acceptPublish": "true", "acceptSubscribe": "true"}
        self.ask("admin_add_broker_configure", **broker, **more)
        self.ask("admin_online_broker_configure", brokerId=1)

    def start_broker(self) -> None:
        """Start the broker; it knows the topics that were made before."""
        self._run("BrokerStartup", BROKER_INI)
        wait_until(lambda: _listens(self.ports["broker"]), READY_S, "the broker's port")

    def add_topic(self, name: str, partitions: int, stores: int) -> None:
        """Give the broker a topic."""
        self.ask(
            "admin_add_new_topic_record",
            brokerId=1,
            topicName=name,
            numPartitions=partitions,
            numTopicStores=stores,
        )

    def ask(self, method: str, **fields: object) -> None:
        """Change the metadata."""
        who = {"createUser": "tests", "modifyUser": "tests", "confModAuthToken": TOKEN}
        query = urllib.parse.urlencode({"type": "op_modify", "method": method, **fields, **who})
        url = f"http://127.0.0.1:{self.ports['web']}/webapi.htm?{query}"
        try:
            urllib.request.urlopen(url, timeout=20).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 500:  # done, but not printed
                raise

    def close(self) -> None:
        """Kill both."""
        for program in self._programs:
            program.kill()
            program.wait(10)

    def _run(self, name: str, template: str) -> None:
        path = self._directory / f"{name}.ini"
        values = {**self.ports, "token": TOKEN, "directory": self._directory}
        path.write_text(template.format(resources=self._directory / "resources", **values))
        main = f"org.apache.inlong.tubemq.server.tools.{name}"
        home = f"-Dtubemq.home={self._directory}"
        with (self._directory / f"{name}.log").open("wb") as log:
            self._programs.append(
                subprocess.Popen(
                    ["java", "-Xmx512m", home, "-cp", self._classes, main, "-f", str(path)],
                    stdout=log,
                    stderr=log,
                )
            )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        closing(one).__exit__(None, None, None)
    return ports

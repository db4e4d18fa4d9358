"""The command line at a cluster that wants signatures, over TLS."""

from __future__ import annotations

import time
from pathlib import Path

from tests.certificates import Authority
from tests.cli.conftest import here, serving


def test_messages_go_through_a_cluster_that_wants_signatures_and_tls(tmp_path: Path) -> None:
    """With the user's secret from a file; without it the refusal is one line and exit code 4."""
    authority = Authority(tmp_path)
    ca_file = str(tmp_path / "ca.pem")
    cert_file, key_file = authority.issue("server")
    database = f"database=sqlite:///{tmp_path / 'master.db'}"
    secret, cluster_key = tmp_path / "secret", str(tmp_path / "cluster.key")
    secret.write_text("s3cret-of-ann")
    assert here("user", "key", cluster_key).code == 0
    assert here("db", "upgrade", "--set", database).code == 0
    tls = [f"tls.cert_file={cert_file}", f"tls.key_file={key_file}", "tls.port=0"]
    signing = ["tokens.sign_producers=true", "tokens.sign_consumers=true"]
    wanted = [
        database,
        "port=0",
        "http.port=0",
        f"tokens.cluster_key_file={cluster_key}",
        *signing,
        *tls,
    ]
    with serving("master", *sets(wanted)) as master:
        http = f"127.0.0.1:{master.ports['http']}"
        broker = [
            "broker_id=1",
            "port=0",
            "http.port=-1",
            f'masters=["127.0.0.1:{master.ports["master"]}"]',
            f"log.data_dir={tmp_path / 'data'}",
            *tls,
        ]
        with serving("broker", *sets(broker)):
            anybody = ["--http", http, "--master", f"tubes://127.0.0.1:{master.ports['tls']}"]
            anybody += ["--ca-file", ca_file]
            ann = [*anybody, "--user", "ann", "--secret-file", str(secret)]
            added = here(
                *anybody, "user", "add", "ann", "-p", "*", "-c", "*", "--secret-file", str(secret)
            )
            assert added.code == 0, added.err
            until_s = time.monotonic() + 20
            while here(*anybody, "topic", "create", "demo", "--partitions", "2").code != 0:
                assert (
                    time.monotonic() < until_s
                )  # the broker serves, and is registered a little later
            sent = here(*ann, "produce", "demo", stdin=b"one\ntwo\n")
            assert sent.code == 0, sent.err
            read = here(*ann, "consume", "demo", "-g", "readers", "-c", "2", "-q")
            refused = here(*anybody, "produce", "demo", stdin=b"three\n")

    assert sorted(read.lines) == ["one", "two"]
    assert refused.code == 4
    assert "tube: this cluster wants signed clients" in refused.err.splitlines()


def sets(options: list[str]) -> list[str]:
    """Options of a server's configuration."""
    return [word for option in options for word in ("--set", option)]

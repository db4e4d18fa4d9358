"""A configuration is right, or all that is wrong in it is said at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tube.config import BrokerConfig, MasterConfig, load, load_file, parse_address
from tube.errors import ConfigError
from tube.values import Address


def test_an_empty_file_gives_the_defaults() -> None:
    """A master needs no configuration."""
    assert load(MasterConfig, {}) == MasterConfig()
    assert load_file(MasterConfig, "") == MasterConfig()


def test_all_faults_come_in_one_answer() -> None:
    """Wrong types, unknown keys, missing and too small values are reported together, sorted."""
    with pytest.raises(ConfigError) as caught:
        load(
            BrokerConfig,
            {
                "lisen": 1,
                "port": "1",
                "log": {"data_dri": "x", "segment_bytes": 1},
                "http": 3,
                "masters": "m",
            },
        )

    assert caught.value.faults == [
        "broker_id: missing",
        "http: expected a table, got 3",
        "lisen: unknown option",
        "log.data_dri: unknown option",
        "log.segment_bytes: 1 is less than 4096",
        "masters: expected a list of strings, got 'm'",
        "port: expected int, got '1'",
    ]


def test_overrides_reach_into_tables_and_bare_words_are_strings() -> None:
    """``--set log.data_dir=/x`` needs no quotes; numbers and lists are TOML."""
    config = load(
        BrokerConfig,
        {"broker_id": 1, "log": {"checkpoint_s": 3}},
        ["log.data_dir=/x", "port=0", 'masters=["a:1"]', "http.port=-1"],
    )

    assert config.log.data_dir == "/x"
    assert config.log.checkpoint_s == 3.0
    assert (config.port, config.masters, config.http.port) == (0, ["a:1"], -1)


@pytest.mark.parametrize("text", ["port", "=1", "broker_id.x=1"])
def test_a_malformed_override_is_a_fault(text: str) -> None:
    """What cannot be applied is said, not ignored."""
    with pytest.raises(ConfigError, match="--set"):
        load(BrokerConfig, {"broker_id": 1}, [text])


def test_a_file_that_is_missing_or_not_toml_is_one_fault(tmp_path: Path) -> None:
    """The path stands in the message."""
    broken = tmp_path / "b.toml"
    broken.write_text("a = ")
    for path in (tmp_path / "none.toml", broken):
        with pytest.raises(ConfigError, match=path.name):
            load_file(MasterConfig, str(path))
    good = tmp_path / "g.toml"
    good.write_text("port = 1")
    assert load_file(MasterConfig, str(good)).port == 1


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "h:0", "h:65536", "h:x"])
def test_addresses_need_host_and_port(text: str) -> None:
    """Anything else is refused with the text."""
    with pytest.raises(ConfigError, match="expected host:port"):
        parse_address(text)


def test_addresses_may_be_ipv6() -> None:
    """Brackets are the URL's, not the host's."""
    assert parse_address("[::1]:8715") == Address("::1", 8715)
    assert parse_address("a:1") == Address("a", 1)


def test_the_reference_page_is_fresh() -> None:
    """docs/reference/config.md is what the dataclasses say."""
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "gen_config_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_a_number_may_have_a_greatest_value() -> None:
    """A signature's window is 5 to 120 seconds."""
    with pytest.raises(ConfigError) as caught:
        load(MasterConfig, {"tokens": {"signature_window_s": 121}})
    assert caught.value.faults == ["tokens.signature_window_s: 121.0 is more than 120"]

    assert (
        load(MasterConfig, {"tokens": {"signature_window_s": 120}}).tokens.signature_window_s == 120
    )

"""The generated modules are those of the proto files, and the numbers are those of the contract."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tube.pb import BrokerService_pb2, MasterService_pb2, RPC_pb2, TubeExtensions_pb2

ROOT = Path(__file__).resolve().parent.parent.parent


def test_generated_code_is_fresh():
    """tube/pb is what scripts/gen_proto.py makes of proto."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is a tool of developers")
    command = [sys.executable, "-W", "ignore", str(ROOT / "scripts" / "gen_proto.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_our_fields_cannot_disturb_original_peers():
    """From 1000 up, and never required: original peers skip them and need not send them."""
    ours = []
    for module in (RPC_pb2, MasterService_pb2, BrokerService_pb2):
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            required = getattr(module, name)().FindInitializationErrors()
            ours += [field for field in message.fields if "_" in field.name]
            added = {field.name for field in message.fields if field.number >= 1000}
            assert added.isdisjoint(required), name

    own = {"TopicFacts", "SigningKey", "GroupRule", "BrokerOrder", "OrderResult", "Span"}
    assert {f.containing_type.name for f in ours if f.number < 1000} <= own


def test_an_answer_of_fetch_shares_the_messages_of_a_pull():
    """Runs are copied into both, so the field numbers must agree."""
    pull = BrokerService_pb2.GetMessageResponseB2C.DESCRIPTOR.fields_by_name
    fetch = TubeExtensions_pb2.FetchResponseB2C.DESCRIPTOR.fields_by_name
    for name in ("success", "errCode", "errMsg", "messages", "spans", "next_offset"):
        assert pull[name].number == fetch[name].number

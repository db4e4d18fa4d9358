"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "brokers",
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("http_port", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("broker_id", name=op.f("pk_brokers")),
    )
    op.create_table(
        "consumer_groups",
        sa.Column("name", sa.String(length=1024), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_consumer_groups")),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "deployments",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "broker_id", name=op.f("pk_deployments")),
    )
    op.create_table(
        "flow_rules",
        sa.Column("scope", sa.String(length=1024), nullable=False),
        sa.Column("check_id", sa.BigInteger(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_flow_rules")),
    )
    op.create_table(
        "history",
        sa.Column(
            "event_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("group_name", sa.String(length=1024), nullable=True),
        sa.Column("client_id", sa.String(length=1024), nullable=True),
        sa.Column("topic", sa.String(length=64), nullable=True),
        sa.Column("broker_id", sa.Integer(), nullable=True),
        sa.Column("partition_id", sa.Integer(), nullable=True),
        sa.Column("round_id", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("principal", sa.String(length=255), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_history")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_history_at_ms"), "history", ["at_ms"], unique=False)
    op.create_index(
        op.f("ix_history_group_name_event_id"),
        "history",
        ["group_name", "event_id"],
        unique=False,
        mysql_length={"group_name": 255},
    )
    op.create_index(op.f("ix_history_kind_event_id"), "history", ["kind", "event_id"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("http_address", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "partition_numbers",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("partition_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "number", name=op.f("pk_partition_numbers")),
        sa.UniqueConstraint(
            "topic_id",
            "broker_id",
            "partition_id",
            name=op.f("uq_partition_numbers_topic_id_broker_id_partition_id"),
        ),
    )
    op.create_table(
        "schema_compat",
        sa.Column("compat_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("oldest_code", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("compat_id", name=op.f("pk_schema_compat")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "statistics",
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("brokers", sa.Integer(), nullable=False),
        sa.Column("topics", sa.Integer(), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("consumer_groups", sa.Integer(), nullable=False),
        sa.Column("history_rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_statistics")),
    )
    op.create_table(
        "topics",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("live_name", sa.String(length=64), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("durable", sa.Boolean(), nullable=False),
        sa.Column("retention", sa.String(length=32), nullable=False),
        sa.Column("retention_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_message_bytes", sa.Integer(), nullable=False),
        sa.Column("accept_publish", sa.Boolean(), nullable=False),
        sa.Column("accept_subscribe", sa.Boolean(), nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("removed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topics")),
        sa.UniqueConstraint("live_name", name=op.f("uq_topics_live_name")),
    )
    op.execute("INSERT INTO schema_compat (compat_id, level, oldest_code) VALUES (1, 1, 1)")

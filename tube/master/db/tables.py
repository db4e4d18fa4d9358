"""The tables of the master's database.

A migration in ``migrations/versions`` belongs to every change here; ``migrate.check`` compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Named,
    String,
    Table,
    Text,
    TypedColumns,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Serial = BigInteger().with_variant(Integer, "sqlite")
"""A number that the database gives; SQLite only counts in its own INTEGER."""


class _SchemaCompat(TypedColumns):
    compat_id: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    level: Named[int] = Column(Integer, nullable=False)
    oldest_code: Named[int] = Column(Integer, nullable=False)


schema_compat = Table("schema_compat", metadata, _SchemaCompat)
"""One row: the level of the schema, and the oldest level of a program that may still run on it."""


class _Leases(TypedColumns):
    name: Named[str] = Column(String(64), primary_key=True)
    holder: Named[str] = Column(String(255), nullable=False)
    address: Named[str] = Column(String(255), nullable=False)
    http_address: Named[str] = Column(String(255), nullable=False)
    epoch: Named[int] = Column(BigInteger, nullable=False)
    expires_at_ms: Named[int] = Column(BigInteger, nullable=False)


leases = Table("leases", metadata, _Leases)


class _Counters(TypedColumns):
    name: Named[str] = Column(String(64), primary_key=True)
    value: Named[int] = Column(BigInteger, nullable=False)


counters = Table("counters", metadata, _Counters)
"""Numbers that are never given twice, whatever is deleted."""


class _Brokers(TypedColumns):
    broker_id: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    host: Named[str] = Column(String(256), nullable=False)
    port: Named[int] = Column(Integer, nullable=False)
    http_port: Named[int] = Column(Integer, nullable=False)
    state: Named[str] = Column(String(16), nullable=False)
    created_ms: Named[int] = Column(BigInteger, nullable=False)


brokers = Table("brokers", metadata, _Brokers)


class _Topics(TypedColumns):
    topic_id: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    name: Named[str] = Column(String(64), nullable=False)
    live_name: Named[str | None] = Column(String(64), nullable=True)
    status: Named[str] = Column(String(16), nullable=False)
    durable: Named[bool] = Column(Boolean(create_constraint=False), nullable=False)
    retention: Named[str] = Column(String(32), nullable=False)
    retention_bytes: Named[int] = Column(BigInteger, nullable=False)
    max_message_bytes: Named[int] = Column(Integer, nullable=False)
    accept_publish: Named[bool] = Column(Boolean(create_constraint=False), nullable=False)
    accept_subscribe: Named[bool] = Column(Boolean(create_constraint=False), nullable=False)
    next_number: Named[int] = Column(Integer, nullable=False)
    created_ms: Named[int] = Column(BigInteger, nullable=False)
    removed_ms: Named[int | None] = Column(BigInteger, nullable=True)


topics = Table("topics", metadata, _Topics, UniqueConstraint("live_name"))
"""``live_name`` is the name until the data is gone; then it is null and the name is free again."""


class _Deployments(TypedColumns):
    topic_id: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    broker_id: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    partitions: Named[int] = Column(Integer, nullable=False)


deployments = Table("deployments", metadata, _Deployments)
"""Which brokers have a topic.  A row goes when its broker has deleted the data."""


class _PartitionNumbers(TypedColumns):
    topic_id: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    number: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    broker_id: Named[int] = Column(Integer, nullable=False)
    partition_id: Named[int] = Column(Integer, nullable=False)


partition_numbers = Table(
    "partition_numbers",
    metadata,
    _PartitionNumbers,
    UniqueConstraint("topic_id", "broker_id", "partition_id"),
)
"""Topic-wide numbers of partitions from 0, which never change (design section 5)."""


class _Groups(TypedColumns):
    name: Named[str] = Column(String(1024), primary_key=True)
    active: Named[bool] = Column(Boolean(create_constraint=False), nullable=False)
    created_ms: Named[int] = Column(BigInteger, nullable=False)
    used_ms: Named[int] = Column(BigInteger, nullable=False)


consumer_groups = Table("consumer_groups", metadata, _Groups)
"""``active`` while the group has members: after a fail-over their reports are waited for."""


class _FlowRules(TypedColumns):
    scope: Named[str] = Column(String(1024), primary_key=True)
    check_id: Named[int] = Column(BigInteger, nullable=False)
    rules: Named[str] = Column(Text, nullable=False)


flow_rules = Table("flow_rules", metadata, _FlowRules)
"""Flow control by group; the scope "" is the cluster's default."""


class _History(TypedColumns):
    event_id: Named[int] = Column(Serial, primary_key=True, autoincrement=True)
    at_ms: Named[int] = Column(BigInteger, nullable=False)
    kind: Named[str] = Column(String(16), nullable=False)
    group_name: Named[str | None] = Column(String(1024), nullable=True)
    client_id: Named[str | None] = Column(String(1024), nullable=True)
    topic: Named[str | None] = Column(String(64), nullable=True)
    broker_id: Named[int | None] = Column(Integer, nullable=True)
    partition_id: Named[int | None] = Column(Integer, nullable=True)
    round_id: Named[int | None] = Column(BigInteger, nullable=True)
    reason: Named[str | None] = Column(Text, nullable=True)
    principal: Named[str | None] = Column(String(255), nullable=True)
    detail: Named[str | None] = Column(Text, nullable=True)


history = Table(
    "history",
    metadata,
    _History,
    Index(None, "group_name", "event_id", mysql_length={"group_name": 255}),
    Index(None, "kind", "event_id"),
    Index(None, "at_ms"),
    sqlite_autoincrement=True,
)


class _SigningKeys(TypedColumns):
    key_id: Named[str] = Column(String(64), primary_key=True)
    secret: Named[bytes] = Column(LargeBinary, nullable=False)
    created_ms: Named[int] = Column(BigInteger, nullable=False)


signing_keys = Table("signing_keys", metadata, _SigningKeys)


class _ClientSecrets(TypedColumns):
    name: Named[str] = Column(String(64), primary_key=True)
    secret: Named[bytes] = Column(LargeBinary, nullable=False)
    produce: Named[str] = Column(Text, nullable=False)
    consume: Named[str] = Column(Text, nullable=False)
    created_ms: Named[int] = Column(BigInteger, nullable=False)


client_secrets = Table("client_secrets", metadata, _ClientSecrets)
"""Users of clients; ``secret`` is encrypted with the cluster key, the topics are JSON lists."""


class _Statistics(TypedColumns):
    day: Named[str] = Column(String(10), primary_key=True)
    brokers: Named[int] = Column(Integer, nullable=False)
    topics: Named[int] = Column(Integer, nullable=False)
    partitions: Named[int] = Column(Integer, nullable=False)
    consumer_groups: Named[int] = Column(Integer, nullable=False)
    history_rows: Named[int] = Column(BigInteger, nullable=False)


statistics = Table("statistics", metadata, _Statistics)
"""How large the cluster was on each day (UTC)."""

"""Users of clients, with secrets that the cluster key opens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "client_secrets",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("produce", sa.Text(), nullable=False),
        sa.Column("consume", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_client_secrets")),
    )
    op.execute("UPDATE schema_compat SET level = 2")

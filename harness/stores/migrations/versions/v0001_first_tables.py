"""The first tables.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "harness_approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double[float](), nullable=False),
        sa.Column("expires_at", sa.Double[float](), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("harness_approvals_by_code", "harness_approvals", ["code"], unique=False)
    op.create_index("harness_approvals_by_expiry", "harness_approvals", ["status", "expires_at"], unique=False)
    op.create_index("harness_approvals_by_task", "harness_approvals", ["task_id"], unique=False)
    op.create_table(
        "harness_cards",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("final", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Double[float](), nullable=False),
        sa.Column("closed_at", sa.Double[float](), nullable=True),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("harness_cards_by_state", "harness_cards", ["state", "opened_at"], unique=False)
    op.create_index("harness_cards_by_task", "harness_cards", ["task_id"], unique=False)
    op.create_table(
        "harness_events",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "seq"),
    )
    op.create_table(
        "harness_grants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("chat", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double[float](), nullable=False),
        sa.Column("expires_at", sa.Double[float](), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("harness_grants_by_digest", "harness_grants", ["digest"], unique=False)
    op.create_index("harness_grants_by_user", "harness_grants", ["user_id"], unique=False)
    op.create_table(
        "harness_journal",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("side_effects", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("is_error", sa.Boolean(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("proposed_at", sa.Double[float](), nullable=False),
        sa.Column("started_at", sa.Double[float](), nullable=True),
        sa.Column("ended_at", sa.Double[float](), nullable=True),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "call_id"),
    )
    op.create_table(
        "harness_messages",
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_key", "position"),
    )
    op.create_table(
        "harness_parked_runs",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("parked_at", sa.Double[float](), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_table(
        "harness_sessions",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("length", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("turns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double[float](), nullable=False),
        sa.Column("updated_at", sa.Double[float](), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("harness_sessions_by_use", "harness_sessions", ["updated_at"], unique=False)
    op.create_table(
        "harness_tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double[float](), nullable=False),
        sa.Column("started_at", sa.Double[float](), nullable=True),
        sa.Column("ended_at", sa.Double[float](), nullable=True),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("harness_tasks_by_age", "harness_tasks", ["created_at"], unique=False)
    op.create_index("harness_tasks_by_requester", "harness_tasks", ["requester"], unique=False)
    op.create_index("harness_tasks_by_session", "harness_tasks", ["session_key", "created_at"], unique=False)
    op.create_index("harness_tasks_by_status", "harness_tasks", ["status", "created_at"], unique=False)
    op.create_table(
        "harness_writers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double[float](), nullable=False),
        sa.Column("v", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    # ### end Alembic commands ###

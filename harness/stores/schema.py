"""The tables. What is looked for is a column; the rest of a record is the JSON in its `body` (see `codec`).

All names begin with harness_, as the database may be shared with other programs. Every table has the format of each row
in `v`. Free text is a JSON string. Times are Unix seconds. There are no foreign keys: rows of one task are written by
several replicas in an order that nobody promises, and deleted together.

A change here needs a migration in `migrations/versions`, in two releases: first add what the new code wants while the
old code still runs (expand), and remove what nobody uses any more in the next (contract).
"""

from typing import Any, Final

import sqlalchemy as sa

HEAD: Final = "0001"
"""The migration that makes these tables, so that a database that is up to date is known without loading alembic."""

metadata: Final = sa.MetaData()


def _text(name: str, *, key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, primary_key=key, nullable=False)


def _optional_text(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=True)


def _number(name: str, *, key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, primary_key=key, autoincrement=False, nullable=False)


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)


def _optional_time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=True)


def _format() -> sa.Column[Any]:
    return sa.Column("v", sa.SmallInteger, nullable=False)


# `length`: how many messages; the next one's position. The row outlives a clear, so that the version goes on.
sessions: Final = sa.Table(
    "harness_sessions",
    metadata,
    _text("key", key=True),
    _number("version"),
    _number("fence"),
    _number("length"),
    _number("turns"),
    _text("title"),
    _time("created_at"),
    _time("updated_at"),
    _format(),
    sa.Index("harness_sessions_by_use", "updated_at"),
)

messages: Final = sa.Table(
    "harness_messages",
    metadata,
    _text("session_key", key=True),
    _number("position", key=True),
    _text("body"),
    _format(),
)

tasks: Final = sa.Table(
    "harness_tasks",
    metadata,
    _text("id", key=True),
    _text("session_key"),
    _text("requester"),
    _text("status"),
    _optional_text("stop_reason"),
    _number("fence"),
    _text("body"),
    _text("answer"),
    _optional_text("error"),
    _text("usage"),
    _text("model"),
    _time("created_at"),
    _optional_time("started_at"),
    _optional_time("ended_at"),
    _format(),
    sa.Index("harness_tasks_by_session", "session_key", "created_at"),
    sa.Index("harness_tasks_by_status", "status", "created_at"),
    sa.Index("harness_tasks_by_requester", "requester"),
    sa.Index("harness_tasks_by_age", "created_at"),
)

events: Final = sa.Table(
    "harness_events",
    metadata,
    _text("task_id", key=True),
    _number("seq", key=True),
    _text("body"),
    _format(),
)

approvals: Final = sa.Table(
    "harness_approvals",
    metadata,
    _text("id", key=True),
    _text("code"),
    _text("task_id"),
    _text("session_key"),
    _text("status"),
    _optional_text("decision"),
    _text("decided_by"),
    _time("asked_at"),
    _time("expires_at"),
    _text("body"),
    _format(),
    sa.Index("harness_approvals_by_code", "code"),
    sa.Index("harness_approvals_by_task", "task_id"),
    sa.Index("harness_approvals_by_expiry", "status", "expires_at"),
)

parked_runs: Final = sa.Table(
    "harness_parked_runs",
    metadata,
    _text("task_id", key=True),
    _text("session_key"),
    _time("parked_at"),
    _text("body"),
    _format(),
)

grants: Final = sa.Table(
    "harness_grants",
    metadata,
    _text("id", key=True),
    _text("digest"),
    _text("chat"),
    _text("user_id"),
    _text("session_key"),
    _time("created_at"),
    _time("expires_at"),
    _text("body"),
    _format(),
    sa.Index("harness_grants_by_digest", "digest"),
    sa.Index("harness_grants_by_user", "user_id"),
)

# `position`: of the call among those that were proposed with it.
journal: Final = sa.Table(
    "harness_journal",
    metadata,
    _text("task_id", key=True),
    _text("call_id", key=True),
    _text("session_key"),
    _text("state"),
    _text("digest"),
    _flag("side_effects"),
    _text("body"),
    _text("result"),
    _flag("is_error"),
    _number("position"),
    _time("proposed_at"),
    _optional_time("started_at"),
    _optional_time("ended_at"),
    _format(),
)

cards: Final = sa.Table(
    "harness_cards",
    metadata,
    _text("key", key=True),
    _text("task_id"),
    _text("session_key"),
    _text("state"),
    _text("message_id"),
    _text("place"),
    _text("text"),
    _text("final"),
    _time("opened_at"),
    _optional_time("closed_at"),
    _format(),
    sa.Index("harness_cards_by_task", "task_id"),
    sa.Index("harness_cards_by_state", "state", "opened_at"),
)

# One row per process that writes, PostgreSQL only: which of its transactions was the last one committed.
writers: Final = sa.Table(
    "harness_writers",
    metadata,
    _text("id", key=True),
    _number("number"),
    _time("at"),
    _format(),
)

"""Statements that several stores share."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Rows = Sequence[Any]


async def fetch(connection: AsyncConnection, query: sa.Executable, values: Mapping[str, Any] | None = None) -> Rows:
    """All rows of a statement."""
    return (await connection.execute(query, values)).all()


async def insert_new(connection: AsyncConnection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows; those whose primary key is there already change nothing."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    await connection.execute(insert(table).on_conflict_do_nothing(), list(rows))


async def insert_or_replace(connection: AsyncConnection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows; those whose primary key is there already take its place."""
    insert = (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table)
    values = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
    await connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


def begins_with(column: sa.Column[Any], prefix: str) -> sa.ColumnElement[bool]:
    """Whether the column begins with exactly this text: `%` and `_` in it are letters, and case counts."""
    return sa.func.substr(column, 1, len(prefix)) == prefix

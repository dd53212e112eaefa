"""What alembic runs: the steps, on the connection and in the transaction that `harness.stores.migrate` has opened."""

from alembic import context

from harness.stores.migrate import VERSION_TABLE
from harness.stores.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can undo the making of a table too; the transaction is ours in any case.
    transactional_ddl=False,
)
context.run_migrations()

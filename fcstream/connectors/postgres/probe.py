"""What `fcstream doctor` asks a PostgreSQL server that takes releases."""

from __future__ import annotations

from typing import Any

from ..probes import Checkup, ClockOffset, Probe
from ..urls import Address
from .long_table import LongTable
from .sink import PostgresSink


class PostgresProbe(Probe):
    """Checks the server, the table, this login's rights, and the clock."""

    def sink(self, checkup: Checkup, address: Address) -> None:
        class UnpreparedSink(PostgresSink):
            """A sink that is opened without making its tables."""

            def _make_numbers(self, db: Any, numbers: LongTable) -> None:
                checkup.ok("sink", f"{self.location}: the table of `numbers` will be made, with all that is there")

            def _prepare(self, db: Any) -> None:
                def ask(query: str, *values: str) -> Any:
                    return (db.execute(query.encode(), values or None).fetchone() or [None])[0]

                clock = "SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"
                checkup.clocks.append(ClockOffset.read("the sink's PostgreSQL", lambda: float(ask(clock))))
                named = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
                if ask("SELECT pg_is_in_recovery()"):
                    checkup.problem("sink", f"{self.location} is a standby, which takes no rows", "name the primary")
                elif self._schema and ask(named, self._schema) is False:
                    checkup.problem("sink", f"this login may not use schema {self._schema}", "grant it USAGE")
                elif self._exists(db):
                    super()._prepare(db)
                    rights = "SELECT has_table_privilege(%s, 'INSERT') AND has_table_privilege(%s, 'SELECT')"
                    if ask(rights, self._table, self._table):
                        checkup.ok("sink", f"{self.location}: table {self._name} takes rows; none was written")
                    else:
                        checkup.problem(
                            "sink", f"this login may not use table {self._name}", "grant it INSERT and SELECT"
                        )
                elif ask(
                    "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = "
                    "coalesce(nullif(%s, ''), current_schema())), "
                    "has_database_privilege(current_database(), 'CREATE'))",
                    self._schema,
                ):
                    checkup.ok("sink", f"{self.location}: table {self._name} will be made")
                else:
                    checkup.problem("sink", f"this login may not make table {self._name}", "make it, or grant CREATE")

        UnpreparedSink(address).close()

"""A connector of one's own: messages in a table of SQLite, which a program fills beside its own tables ("outbox").

The URL is ``outbox://local/PATH``; the table is ``messages (id INTEGER PRIMARY KEY, arrived_ms INTEGER, body BLOB)``.
"""

import sqlite3
import time
from contextlib import closing

import numpy as np

from fcstream.connectors.base import Chunk, Source
from fcstream.connectors.probes import Probe

POSITIONS = "CREATE TABLE IF NOT EXISTS positions (consumer TEXT PRIMARY KEY, next INTEGER)"
COMMIT = "INSERT INTO positions VALUES (?, ?) ON CONFLICT (consumer) DO UPDATE SET next = excluded.next"


class OutboxSource(Source):
    """One partition; ids that grow are the offsets."""

    receipt_is_durable = True  # `arrived_ms` stands in the table: a message has it for ever

    def __init__(self, address, name):
        address.finish()  # there are no options: a misspelled one is an error
        self._name = name
        self._table = sqlite3.connect(f"/{address.path}", isolation_level=None, check_same_thread=False)
        self._table.execute(POSITIONS)
        self._next = self._value("SELECT max(next) FROM positions WHERE consumer = ?", name)

    def _value(self, query, *arguments):
        return self._table.execute(query, arguments).fetchone()[0] or 0

    def seek(self, positions):
        self._next = positions["messages"]

    def poll(self, max_messages, timeout_s):
        query = "SELECT id, arrived_ms, body FROM messages WHERE id >= ? ORDER BY id LIMIT ?"
        rows = self._table.execute(query, (self._next, max_messages)).fetchall()
        if not rows:
            time.sleep(timeout_s)
            return []
        ids, arrivals, bodies = zip(*rows, strict=True)
        self._next = ids[-1] + 1
        return [Chunk("messages", np.array(ids), np.array(arrivals), list(bodies))]

    def ends(self):
        return {"messages": self._value("SELECT max(id) FROM messages") + 1}

    def behind(self, ends):
        # Rows that somebody deleted are not waited for.
        return self._value("SELECT max(id) FROM messages WHERE id >= ? AND id < ?", self._next, ends["messages"]) > 0

    def commit(self, positions):
        for position in positions.values():
            self._table.execute(COMMIT, (self._name, position))

    def close(self):
        self._table.close()


class OutboxProbe(Probe):
    """What `fcstream doctor` says of it; changes nothing."""

    def source(self, checkup, address, name):
        try:
            with closing(sqlite3.connect(f"file:/{address.path}?mode=ro", uri=True)) as table:
                table.execute("SELECT id, arrived_ms, body FROM messages LIMIT 1").fetchone()
        except sqlite3.Error as error:
            checkup.problem(
                "source", f"{address.masked} cannot be read: {error}", "make the table, or correct the path"
            )
        else:
            checkup.ok("source", f"{address.masked} has the table; not tried: writing positions")

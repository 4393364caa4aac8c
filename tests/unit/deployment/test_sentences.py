"""Sentences of plan and report that state a fact: each changes with the setting that makes it true."""

import os
from contextlib import closing

import pytest
from support.helpers import sample
from support.release_kinds import BARE

from fcstream import Engine
from fcstream.config import Config
from fcstream.deployment.facts import collect
from fcstream.deployment.markdown import to_markdown
from fcstream.deployment.registry_record import to_registry
from fcstream.deployment.report import report_of
from fcstream.errors import LedgerError
from fcstream.planning.plan import plan, quick_warnings
from fcstream.releases.base import Release

MADE = 1_790_000_000_000
COUNT = {**BARE, "kind": "count", "rho": 0.1}
FREQUENT = {**BARE, "kind": "frequent", "rho": 0.1, "delta": 1e-9}
EXACT = {"rho": 1.0, "delta": 0.0}
USER = {"unit": "user", "user": "id"}
KEYS = {"key": "site", "keys": ["a", "b"]}
LIVE = {"clock": "wall", "start": "2026-01-01T00:00:00Z", "end": None}


def config_of(base, change):
    sections = {name: dict(values) for name, values in base.items()}
    for name, values in change.items():
        sections[name] = {**sections.get(name, {}), **values}
    mapping = sample(**{"ledger": {"url": "sqlite:l.db"}, **sections})
    for section in mapping.values():
        if isinstance(section, dict):
            for key in [key for key, value in section.items() if value is None]:
                del section[key]
    return Config.from_mapping(mapping)


def texts_of(config):
    facts = collect(config, {}, MADE)
    return "\n".join([to_markdown(report_of(facts)), to_registry(facts), *plan(config).lines()])


MEMORY = {"ledger": {"url": "memory:"}}
SERVER = {"ledger": {"url": "postgresql://db/x"}}
FILES = {"clock": "eof", "end": "2026-01-02T00:00:00Z"}
STOP, REFUSE = {"budget": {**EXACT, "exhausted": "stop"}}, {"budget": {"exhausted": "refuse"}}
PAPER = {
    **BARE,
    "size_hint": 1000,
    "kind": "synthetic",
    "variant": "paper",
    "edges": {"a": [0.0], "b": [50.0]},
    "rho": 0.5,
}
NO_PAPER = COUNT | {"variant": None, "edges": None, "size_hint": None}
CLIPS, SHARE = {"outliers": "clip"}, {"outliers": 0.05}
ROOM = {"budget": {"rho": 4.0, "delta": 1e-6}}
PLAIN = sample()["release"]
MEDIAN = {"kind": "quantiles", "quantiles": [0.5], "feature": "a"}
MUCH = {**EXACT, "rho": 100.0}
LITTLE = {"budget": {**EXACT, "rho": 0.02}, "release": {**COUNT, "rho": 0.001}}
PAGE = {"service": {"listen": "127.0.0.1:1", "page": True}}
STREAM = {"stream": {"unit": "stream"}, "release": COUNT, "budget": EXACT}
USERS = {"stream": USER, "release": COUNT, "budget": EXACT}
EVENTS = {"release": COUNT, "budget": EXACT}
SPOOL = {"source": {"url": "mqtt://host/topic", "spool": "sp"}, "window": {**LIVE, "clock": "broker"}}
TOGETHER = {"stream": USER | KEYS | {"key_budgets": "shared"}, "release": COUNT, "budget": EXACT}
SECRET = {"ledger": {"url": "sqlite:l.db", "user_key": "env:SECRET"}}
DEAD, COUNTERS = (
    {"dead_letter": {"url": "jsonl:d", "max_bytes": 100_000}},
    {"service": {"listen": "127.0.0.1:1", "counters": True}},
)
TOTAL = {"release": {**BARE, "kind": "total", "of": "count", "epoch": 4, "rho": 0.1}, "budget": EXACT}

# What a sentence says, a configuration of which it is true, and a change of one setting that makes it false.
FACTS = [
    ("for ever", STREAM, MEMORY),
    ("on disk", STREAM, MEMORY),
    ("on disk", STREAM, SERVER),
    ("through crashes and restarts, because", STREAM, MEMORY),
    ("drawn once more at most", STREAM, MEMORY),
    ("never changed or drawn again", STREAM, MEMORY),
    ("The budget is never reset", STREAM, MEMORY),
    ("Published lines are final", STREAM, MEMORY),
    ("which the ledger refuses", STREAM, MEMORY),
    ("a run with another one is refused", STREAM, MEMORY),
    ("older copy of the ledger that is put back", STREAM, MEMORY),
    ("(mode 0600)", STREAM, None),
    ("Ledger and dead letters are made readable", STREAM, SERVER),
    ("What was spent is known in this process only", STREAM | MEMORY, {"ledger": {"url": "sqlite:l.db"}}),
    ("in this process only: (rho=1", STREAM | MEMORY, {"ledger": {"url": "sqlite:l.db"}}),
    ("about a certain record", EVENTS, {"stream": USER}),
    ("about a certain user", USERS, {"stream": {"unit": "event", "user": None}}),
    ("it is refused when there is no room", STREAM, STOP),
    ("the run ends when there is no room", STREAM | STOP, REFUSE),
    ("until the budget is used up and the run ends", STREAM | STOP, REFUSE),
    ("rho is four times as large", USERS, {"budget": {"delta": 1e-6}}),
    ("five together can lose 25 times", USERS, {"budget": {"delta": 1e-6}}),
    ("catastrophic failure.", USERS, {"budget": {"delta": 1e-6}}),
    ("loses more than the table says", {}, EVENTS),
    ("k times k the rho of one", EVENTS, {"release": PLAIN, "budget": {"rho": 4.0, "delta": 1e-6}}),
    ("the schedule ends it, after", EVENTS, {"window": LIVE}),
    ("Alarms (late or unusable records)", EVENTS | {"window": LIVE}, {"window": FILES}),
    ("alarms, which are not published, count records", USERS | {"window": LIVE}, {"window": FILES}),
    ("keys cost a record nothing.", EVENTS | {"stream": KEYS}, {"stream": {"key": None, "keys": None}}),
    ("each key may spend (rho=0.5", USERS | {"stream": USER | KEYS}, {"stream": {"keys_per_user": 1}}),
    ("what one key may spend of the guarantee", USERS | {"stream": USER | KEYS}, {"stream": {"keys_per_user": 1}}),
    ("under each of 2 keys", USERS | {"stream": USER | KEYS}, {"stream": {"keys_per_user": 1}}),
    ("of one window, under each of 2 keys | 0.2", USERS | {"stream": USER | KEYS}, {"stream": {"keys_per_user": 1}}),
    ("Other streams about the same people are not in it", STREAM, {"budget": {"group": "g"}}),
    ("other streams under other names", STREAM, {"budget": {"group": "g"}}),
    ("That is weak", STREAM, {"budget": {"rho": 100.0}}),
    ("That is nearly nothing", STREAM | {"budget": MUCH}, {"budget": {"rho": 1.0}}),
    ("That is strong", STREAM | LITTLE, {"budget": {"rho": 1.0}}),
    ("protects weakly", STREAM | {"budget": MUCH}, {"budget": {"rho": 1.0}}),
    ("and to whoever opens the page", STREAM | PAGE, {"service": {"page": False}}),
    ("the mean of all records, far ones moved nearer", EVENTS | {"release": PLAIN | CLIPS} | ROOM, {"release": SHARE}),
    ("Records outside of the core do not count", EVENTS | {"release": PLAIN | SHARE} | ROOM, {"release": CLIPS}),
    ("drawn in floating point", EVENTS | {"release": PAPER}, {"release": NO_PAPER}),
    ("from the stream's first run on, ", EVENTS | {"window": LIVE}, {"window": FILES}),
    ("The schedule ends before that, or with it", STREAM, {"window": {"end": "1970-01-02T00:00:00Z"}}),
    ("whole messages as they were sent", STREAM | SPOOL, {"source": {"url": "jsonl:x", "spool": None}}),
    ("or with the whole spool", STREAM | SPOOL, {"source": {"url": "jsonl:x", "spool": None}}),
    ("Sooner only at the source; the promise stands", STREAM, SPOOL),
    ("of each user, with the name", USERS, {"stream": {"unit": "event", "user": None}}),
    ("user key, in `", TOGETHER, {"stream": {"key_budgets": "divided"}}),
    ("l.db.user-key", TOGETHER, {"ledger": {"user_key": "env:SECRET"}}),
    ("the environment variable SECRET", TOGETHER | SECRET, {"ledger": {"user_key": None}}),
    ("Deleting the user key ends the stream", TOGETHER, {"stream": {"key_budgets": "divided"}}),
    ("positions, up to 100,000 bytes of a file; no contents", STREAM | DEAD, {"dead_letter": {"max_bytes": 200_000}}),
    ("exact numbers of records, for operators", STREAM | COUNTERS, {"service": {"counters": False}}),
    ("exact running totals of the current epoch", TOTAL, {"release": COUNT | {"epoch": None, "of": None}}),
    ("for ever: it is the promise", STREAM, MEMORY),
    ("holds nothing to delete for one person", STREAM, MEMORY),
    ("`memory:`", STREAM | MEMORY, {"ledger": {"url": "sqlite:l.db"}}),
    ("numbers may be negative, and carry `sigma`", STREAM, {"release": MEDIAN}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "base", "change"), FACTS, ids=[f"{i}: {fact[0]}" for i, fact in enumerate(FACTS)])
def test_a_sentence_is_there_where_its_setting_makes_it_true_and_nowhere_else(words, base, change):
    assert words in texts_of(config_of(base, {}))
    if change is not None:
        assert words not in texts_of(config_of(base, change))


FALSE = ("never because of one record", "initial public draft", "No row is a real one", "nearly as likely")


@pytest.mark.parametrize("base", [EVENTS, USERS, STREAM, STREAM | MEMORY])
def test_what_was_never_true_is_nowhere(base):
    found = texts_of(config_of(base, {}))
    assert [text for text in FALSE if text in found] == []


def test_a_ledger_in_memory_is_told_by_plan_run_and_releases():
    config = config_of(STREAM, MEMORY)
    assert plan(config).as_dict()["lasts"] == "in this process only"
    assert any("`ledger.url` = 'memory:' knows" in text for text in quick_warnings(config))
    assert not any("memory:" in text for text in quick_warnings(config_of(STREAM, {})))
    with closing(Engine(config)) as engine:
        found = engine.close()
    assert {one.ledger for one in found} == {"memory"}
    assert Release.from_bytes(found[0].to_bytes()).ledger == "memory"


def test_a_release_of_a_ledger_on_disk_says_nothing_of_it(tmp_path):
    with closing(Engine(config_of(STREAM, {"ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"}}))) as engine:
        found = engine.close()
    assert b'"ledger"' not in found[0].to_bytes()


def test_a_ledger_in_memory_is_refused_after_a_fork():
    """Parent and child would each have spent the whole budget on the same records."""
    engine = Engine(config_of(STREAM, MEMORY))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            engine.close()
            told = "released"
        except LedgerError as error:
            told = str(error)
        os.write(write, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode().startswith("the ledger in memory was opened before a fork")
    assert engine.close()  # the parent's is good

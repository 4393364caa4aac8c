"""The report on a deployment: complete for every kind, the same numbers as plan and ledger, safe in every format."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support import REPOSITORY
from support.helpers import sample
from support.release_kinds import BARE, OF_TEXTS, RELEASES
from support.reported_ledgers import body

from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.cli import main
from fcstream.config import Config
from fcstream.config.conversion import read_toml
from fcstream.deployment.document import LEVELS, Drawing, FactTable, HazardAnswer, Paragraph
from fcstream.deployment.facts import collect, read_ledger
from fcstream.deployment.hazards import HAZARDS
from fcstream.deployment.html import to_html
from fcstream.deployment.markdown import to_markdown
from fcstream.deployment.registry_record import FIELDS, record_of, to_registry, unknown_fields
from fcstream.deployment.report import report_of
from fcstream.errors import ConfigError, LedgerDamaged
from fcstream.ledgers import each_reader, open_ledger
from fcstream.ledgers.base import Request, SealedRelease
from fcstream.planning.plan import plan
from fcstream.releases.descriptions import DESCRIPTIONS, description_of, variations_of
from fcstream.releases.registry import KINDS
from fcstream.reporting.budget import Report
from fcstream.testing import window

pytest.importorskip("matplotlib")
MADE = 1_790_000_000_000
SECTIONS = [
    *("summary", "released", "protected", "guarantee", "losses", "mechanisms", "noise", "parameters", "spent"),
    *("hazards", "personal-data", "limits", "versions", "proofs", "words"),
]
COUNT = {**BARE, "kind": "count"}
USERS = {
    "stream": {"unit": "user", "user": "id"},
    "release": {**COUNT, "rho": 0.1},
    "budget": {"rho": 1.0, "delta": 0.0},
}
SPENT = {**USERS, "stream": {"unit": "stream"}}
VOID = {"meta", "br", "img", "hr", "link", "input", "path", "use"}


def config_of(**sections):
    """The sample configuration with some keys of some sections changed, or with other features."""
    features = sections.pop("features", None)
    mapping = sample(**sections)
    return Config.from_mapping(mapping if features is None else mapping | {"features": features})


def facts_of(sections=None, ledger=None, **more):
    return collect(config_of(**(sections or {}), **more), {"stream": {"name": "t"}}, MADE, ledger)


def all_words(report):
    """Everything that a reader can read."""
    found = [report.title, report.subtitle, report.made]
    for block in report.blocks():
        values = dataclasses.asdict(block) if not isinstance(block, Drawing) else {"a": block.alt, "c": block.caption}
        found.append(json.dumps(values, ensure_ascii=False))
    return "\n".join(found)


def table(report, caption):
    (found,) = (one for one in report.blocks() if isinstance(one, FactTable) and one.caption.startswith(caption))
    return {row[0]: dict(zip(found.head, row, strict=True)) for row in found.rows}


class Page(HTMLParser):
    """Checks that elements are closed in order, ids are unique, and nothing is loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.heads, self.text, self.tags = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        assert len(values) == len(attrs), f"an attribute of {tag} is there twice"
        self.tags.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        if re.fullmatch("h[1-6]", tag):
            self.heads.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


# -- every kind --------------------------------------------------------------------------------------------------------


def test_every_kind_is_described_and_what_is_cited_exists():
    assert DESCRIPTIONS.keys() == KINDS.keys()
    pages = {
        name: set(re.findall(r"^#+ (\d+\.\d+)", (REPOSITORY / "docs/design" / f"{name}.md").read_text(), re.MULTILINE))
        for name in ("specification", "proofs", "errata")
    }
    for name, found in DESCRIPTIONS.items():
        assert found.specification, name
        assert found.proofs, name
        assert found.sources, name
        assert found.bias.endswith("."), name
        for page, sections in pages.items():
            assert set(getattr(found, page)) <= sections, (name, page)
    config = config_of(
        release={"size_hint": 2000, "radius": "search", "radius_min": 0.05, "radius_max": 90.0, "spread": None}
    )
    (found,) = variations_of(config.releases[0])
    assert set(found.specification) <= pages["specification"]
    assert description_of(config.releases[0]) is DESCRIPTIONS["mean/recentered"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RELEASES, *OF_TEXTS])
def test_every_kind_has_a_whole_report(name):
    more = {"features": [{"name": "city", "type": "text"}]} if name in OF_TEXTS else {}
    if name in OF_TEXTS:
        more["lattice"] = None
    release = OF_TEXTS.get(name) or RELEASES[name][0]
    facts = facts_of(release=release, budget={"rho": 400.0, "delta": 1e-4}, **more)
    report = report_of(facts)
    assert [section.anchor for section in report.sections] == SECTIONS
    assert all(section.blocks for section in report.sections)
    words = all_words(report)
    found = DESCRIPTIONS[name]
    for part in (found.what, found.mechanism, found.bias, *found.sources, *found.specification):
        assert json.dumps(part, ensure_ascii=False)[1:-1] in words
    page = Page(to_html(report))
    assert all(title in "".join(page.text) for title, _, _ in HAZARDS)
    assert all(heading.title in to_markdown(report) for heading in report.sections)
    assert record_of(facts)["deployment"]["dp_variant"]["variant_name"] == "Zero-concentrated DP"


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_plan():
    facts = facts_of()
    found = plan(facts.config, facts.deltas[1])
    assert facts.plan == found
    assert facts.deltas == pytest.approx((2e-5, 2e-6, 1.25e-6))
    lines = {line.name: line for line in facts.lines}
    assert lines["one window"].epsilons[1] == found.epsilon_release
    assert lines["a day"].epsilons[1] == found.epsilon_day
    assert lines["a year"].epsilons[1] == found.epsilon_year
    assert lines["the guarantee"].epsilons[1] == found.epsilon_guarantee
    assert [epsilon_tight(4.0, delta - 1e-6) for delta in facts.deltas] == list(lines["the guarantee"].epsilons)
    told = table(report_of(facts), "The guarantee as")
    assert [row["epsilon"] for row in told.values()] == [f"{value:.3g}" for value in lines["the guarantee"].epsilons]


def test_users_cannot_lose_more_than_the_cap():
    facts = facts_of(USERS)
    year, day = facts.line("a year"), facts.line("a day")
    assert year.epsilons[1] > facts.epsilon == year.bounds[1]
    assert day.bounds[1] == min(day.epsilons[1], facts.epsilon)
    words = all_words(report_of(facts))
    assert "There the guarantee stops it, in this process only" in words


@pytest.mark.parametrize(("per_user", "times"), [(None, 2), (1, 1)])
def test_keys_of_users_share_the_guarantee(per_user, times):
    keys = {"key": "site", "keys": ["a", "b"], **({} if per_user is None else {"keys_per_user": per_user})}
    facts = facts_of(USERS | {"stream": {**USERS["stream"], **keys}})
    assert facts.guarantee == PrivacyLoss.cap(1.0)
    assert facts.plan.key_share == (None if times == 1 else PrivacyLoss(10**9 // times))
    alone = facts_of(USERS)
    assert facts.line("a day").rho == pytest.approx(times * alone.line("a day").rho)
    words = all_words(report_of(facts))
    assert ("the operator's promise, which is not checked" in words) == (per_user == 1)


TOTAL = {"rho": 4.0, "delta": 1e-6, "total_rho": 50.0, "total_delta": 1e-6}


def test_shared_keys_groups_savings_totals_sliding_and_tracking_are_told():
    shared = {**USERS["stream"], "key": "site", "keys": ["a", "b", "c"], "keys_per_user": 2, "key_budgets": "shared"}
    words = all_words(report_of(facts_of(USERS | {"stream": shared})))
    assert "counts under at most 2 of them" in words
    assert "2.12" in words
    words = all_words(report_of(facts_of({**USERS, "budget": {"rho": 1.0, "delta": 0.0, "group": "house"}})))
    assert "one budget for all streams of the group `house`" in words
    saving = {"stream": {"unit": "stream"}, "budget": {"rho": 10.0, "delta": 1e-6, "savings": "even"}}
    words = all_words(report_of(facts_of(saving)))
    assert "Windows that need less than they reserved" in words
    assert "Liang, Yi" in words
    facts = facts_of(budget=TOTAL)
    assert facts.line("the total").rho == 50.0
    assert facts.line("a year").bounds[1] == facts.line("the total").epsilons[1]
    facts = facts_of(stream={"key": "site", "keys": ["a", "b"]}, budget=TOTAL)
    assert facts.line("a year").bounds[1] == facts.line("the total").epsilons[1]
    assert "No budget caps that" not in all_words(report_of(facts))
    facts = facts_of(window={"slide": "5s"})
    assert "one record, in all 2 windows" in all_words(report_of(facts))
    tracking = all_words(report_of(facts_of(release={"method": "tracking", "size_hint": 2000})))
    assert "starts cold" in tracking


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["event", "user"])
def test_keys_that_are_found(unit):
    keys = {"discover": "frequent", "every": "20s", "rho": 0.1, "delta": 1e-8, "first": ["lab"]}
    stream = {"key": "site", "keys": keys, "unit": unit}
    if unit == "user":
        stream |= {"user": "id", "key_budgets": "shared", "keys_per_user": 2}
    release = {**COUNT, "rho": 0.1}
    budget = {"rho": 1.0, "delta": 1e-6}
    facts = facts_of({"stream": stream, "release": release, "budget": budget, "ledger": {"url": "sqlite:l.db"}})
    report = report_of(facts)
    words = all_words(report)
    assert "a private search tells the keys" in words
    assert "`lab`" in words
    assert "2.14" in words
    assert facts.line("a day").rho == pytest.approx((0.1 * (2 if unit == "user" else 1) + 0.05) * 8640)
    if unit == "event":
        assert facts.line("one record").rho == pytest.approx(0.2)
    Page(to_html(report))


@pytest.mark.slow
def test_several_answers():
    answers = [
        {"name": "how_many", "kind": "count", "rho": 0.5},
        {"name": "high", "kind": "count", "rho": 0.5, "where": {"a": {"min": 30.0}}},
        {
            "name": "low",
            "kind": "quantiles",
            "quantiles": [0.5],
            "feature": "a",
            "rho": 0.25,
            "where": {"a": {"max": 20.0}},
        },
    ]
    mapping = sample() | {"release": answers, "budget": {"rho": 4.0, "delta": 0.0}}
    facts = collect(Config.from_mapping(mapping), mapping, MADE)
    report = report_of(facts)
    rows = table(report, "What is published")
    assert list(rows) == ["the answer `how_many`", "the answer `high`", "the answer `low`"]
    assert rows["the answer `high`"]["about which records"] == "those where `a` from 30"
    assert "all answers of one window together" in all_words(report)
    assert facts.line("one window").rho == 1.0  # no record is high and low
    assert table(report, "Settings")["`release.low.quantiles`"]["where it comes from"] == "written"
    Page(to_html(report))


def test_settings_say_where_they_come_from(tmp_path):
    (tmp_path / "c.toml").write_text(CONFIG)
    config = Config.load(tmp_path / "c.toml")
    rows = table(report_of(collect(config, read_toml(tmp_path / "c.toml"), MADE)), "Settings")
    origins = {name: row["where it comes from"] for name, row in rows.items()}
    assert origins["`budget.rho`"] == "written"
    assert origins["`stream.per_user`"] == "default"
    assert origins["`window.slide`"] == "left out: windows do not overlap"
    assert rows["`ledger.url`"]["value"] == "`postgresql://***@db/house`"
    assert "hunter2" not in json.dumps(rows)


# -- ledgers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def spent(tmp_path):
    """A ledger of 13 windows: three find no room, two are refused for another reason, eight have numbers."""
    config = config_of(**SPENT)
    ledger = open_ledger(f"sqlite:{tmp_path / 'l.db'}", config.job.terms)
    loss = PrivacyLoss.charge("0.1")
    for i in range(13):
        charged = ledger.charge([Request(window(i), loss, ("stream",))])[0].charge is not None
        reason = (None if i > 1 else "too_few") if charged else "budget_exhausted"
        ledger.seal([SealedRelease(window(i), body(i, reason), PrivacyLoss())])
        ledger.acknowledge([window(i)])
    ledger.close()
    return config, str(tmp_path / "l.db")


def read(config, path):
    return read_ledger(config, path, each_reader(path))


@pytest.mark.slow
def test_a_ledger_tells_what_was_spent_and_refused(spent):
    config, path = spent
    ledger = read(config, path)
    facts = collect(config, {}, MADE, ledger)
    (stream,) = ledger.streams
    for reader in each_reader(path):
        assert stream.budget == Report.of(reader, facts.deltas[1])
    assert stream.agrees
    assert stream.rows > 13
    report = report_of(facts)
    assert (
        table(report, "What was spent")["`t`, the stream"]["spent"]
        == "(rho=1, delta=0) of (rho=1, delta=0), which is 100%"
    )
    answers = table(report, "Windows")["`t`"]["answers"]
    assert "3 budget_exhausted" in answers
    assert "2 too_few" in answers
    assert "8 released" in answers
    first = next(block for block in report.section("summary").blocks if isinstance(block, Paragraph))
    assert first.strong
    assert first.text == (
        "The budget is used up: another window has no room and gets no value. 3 answers already were refused for lack "
        "of budget."
    )
    words = all_words(report)
    assert "the budget has no room for another window" in words
    assert stream.sealed_hash in words
    assert [block.name for block in report.section("spent").blocks if isinstance(block, Drawing)] == ["spending"]
    Page(to_html(report))


def test_the_hash_is_that_of_the_published_lines(spent):
    import hashlib

    config, path = spent
    done = CliRunner().invoke(main, ["budget", "releases", path])
    assert hashlib.sha256(done.stdout.encode()).hexdigest() == read(config, path).streams[0].sealed_hash


def test_the_chain_is_told(tmp_path):
    config = config_of()
    ledger = open_ledger(f"sqlite:{tmp_path / 'l.db'}", config.job.terms)
    before = ledger.salt
    ledger.charge([Request(window(0), PrivacyLoss.charge(1, "1e-9"), ("0",))])
    ledger.close()
    (stream,) = read(config, str(tmp_path / "l.db")).streams
    assert re.fullmatch("[0-9a-f]{64}", stream.head)
    assert before.hex() not in stream.head
    (again,) = read(config, str(tmp_path / "l.db")).streams
    assert again == stream


def test_another_specification_is_told(spent):
    _, path = spent
    config = config_of(**{**SPENT, "release": {**COUNT, "rho": 0.2}})
    facts = collect(config, {}, MADE, read(config, path))
    assert not facts.ledger.streams[0].agrees
    assert "another specification than this configuration" in all_words(report_of(facts))


def test_a_ledger_of_other_streams_is_refused(spent):
    _, path = spent
    with pytest.raises(ConfigError, match="must hold the stream 'other'"):
        read(config_of(**{**SPENT, "stream": {**SPENT["stream"], "name": "other"}}), path)


def test_every_key_of_a_ledger_is_told(tmp_path):
    config = config_of(**{**USERS, "stream": {**USERS["stream"], "key": "site", "keys": ["a", "b"]}})
    for key in config.job.keys:
        open_ledger(f"sqlite:{tmp_path / 'l.db'}", config.job.part(key).terms).close()
    ledger = read(config, str(tmp_path / "l.db"))
    assert [each.terms.stream for each in ledger.streams] == ["t/a", "t/b"]
    assert ledger.others == ()
    report = report_of(collect(config, {}, MADE, ledger))
    assert [*table(report, "Windows")] == ["`t/a`", "`t/b`"]
    spent = table(report, "What was spent")
    assert spent["`t/b`, a user present in every window"]["spent"].startswith("(rho=0, delta=0) of (rho=0.5, delta=0)")


def test_other_streams_in_the_ledger_are_added_up(spent):
    config, path = spent
    other = config_of(**{**SPENT, "stream": {**SPENT["stream"], "name": "other"}})
    open_ledger(f"sqlite:{path}", other.job.terms).close()
    facts = collect(config, {}, MADE, read(config, path))
    assert facts.ledger.others == ("other",)
    assert table(report_of(facts), "Other streams")["all together"]["guarantee"] == "(rho=2, delta=0)"


@pytest.mark.slow
def test_a_ledger_in_use_can_be_read(spent, tmp_path):
    import subprocess
    import sys

    _config, _path = spent
    (tmp_path / "c.toml").write_text(CONFIG)
    program = (
        "import sys; from fcstream.config import Config; from fcstream.ledgers import open_ledger\n"
        f"ledger = open_ledger('sqlite:{tmp_path / 'rooms.db'}', Config.load('{tmp_path / 'c.toml'}').job.terms)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as holder:
        assert holder.stdout.readline() == b"open\n"
        done = CliRunner().invoke(
            main, ["report", str(tmp_path / "c.toml"), str(tmp_path / "rooms.db"), "--format", "md"]
        )
        holder.stdin.close()
    assert done.exit_code == 0, done.stderr
    assert "nothing yet" in done.stdout


# -- hazards -----------------------------------------------------------------------------------------------------------


def findings(**sections):
    report = report_of(facts_of(**sections))
    return {block.title: block for block in report.section("hazards").blocks if isinstance(block, HazardAnswer)}


def test_every_hazard_is_answered_and_bad_answers_are_told():
    found = findings()
    assert [*found] == [title for title, _, _ in HAZARDS]
    assert len({title for title, _, _ in HAZARDS}) == 26
    assert {block.level for block in found.values()} <= LEVELS.keys()
    events = "Event-level privacy protects events, not individuals"
    large = "Large values of epsilon may not provide meaningful privacy"
    assert found[events].level == "bad"
    assert found[large].level == "bad"
    users = findings(**USERS)
    assert users[events].level == "none"
    assert users[large].level == "attention"
    tiny = findings(**{**USERS, "release": {**COUNT, "rho": 0.01}, "budget": {"rho": 0.01, "delta": 0.0}})
    assert tiny[large].level == "met"
    huge = findings(**{**USERS, "release": {**COUNT, "rho": 60.0}, "budget": {"rho": 60.0, "delta": 0.0}})
    assert huge[large].level == "bad"


def test_answers_follow_the_configuration():
    delta = "The possibility of catastrophic failure under (epsilon, delta)-differential privacy"
    assert findings(**USERS)[delta].level == "met"
    assert findings()[delta].level == "attention"
    assert findings(budget={"rho": 4.0, "delta": 1e-3})[delta].level == "bad"
    access = "Failures in access control policy make guarantees meaningless"
    assert findings()[access].level == "open"
    watched = findings(service={"listen": "127.0.0.1:9100", "counters": True})
    assert watched[access].level == "attention"
    assert "127.0.0.1:9100" in watched[access].text
    bins = "Histogram bins must be specified by the analyst"
    assert findings()[bins].level == "none"
    assert findings(release=RELEASES["histogram"][0])[bins].level == "met"


# -- formats -----------------------------------------------------------------------------------------------------------

EVIL = '<script>alert("x")</script> | [a](javascript:x) `b` *c* & "d" \'e\''


def test_names_from_outside_stay_text():
    stream = {**USERS["stream"], "name": "t <img src=x> | `y`", "key": "site", "keys": [EVIL, "b"]}
    facts = facts_of({**USERS, "stream": stream})
    report = report_of(facts)
    page = Page(to_html(report))
    tags = {tag for tag, _ in page.tags}
    assert "script" not in tags
    assert "img" not in tags
    assert "t <img src=x> | `y`" in "".join(page.text)
    written = to_markdown(report)
    assert written.startswith("# Privacy report: t \\<img src=x\\> \\| \\`y\\`\n")
    outside = re.sub(r"`[^`\n]*`", "", written)
    assert "<script>" not in outside
    assert "](" not in outside
    for line in written.splitlines():
        if line.startswith("| "):
            assert not re.search(r"(?<!\\)\|[^ \n]", line)
    record = yaml.safe_load(to_registry(facts))
    assert record == record_of(facts)
    assert record["deployment"]["basic"]["name"] == "t \\<img src=x\\> \\| \\`y\\`"


@pytest.mark.slow
def test_the_page_loads_nothing_and_is_accessible(spent):
    config, path = spent
    text = to_html(report_of(collect(config, {}, MADE, read(config, path))))
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    page = Page(text)
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.heads[0] == 1
    assert page.heads.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in zip(page.heads, page.heads[1:], strict=False))
    tags = [tag for tag, _ in page.tags]
    assert not set(tags) & {"script", "iframe", "link", "object", "embed"}
    assert tags.count("caption") == tags.count("table")
    assert all("scope" in values for tag, values in page.tags if tag == "th")
    pictures = [values for tag, values in page.tags if tag == "svg"]
    assert len(pictures) == 3
    assert all(values["role"] == "img" and values["aria-labelledby"] in page.ids for values in pictures)
    assert ("html", {"lang": "en"}) in page.tags
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert "width=device-width" in text


@pytest.mark.slow
def test_the_formats_say_the_same(spent):
    config, path = spent
    report = report_of(collect(config, {}, MADE, read(config, path)))
    shown = " ".join("".join(Page(to_html(report)).text).split())
    written = re.sub(r"\\(.)", r"\1", to_markdown(report))
    for block in report.blocks():
        if isinstance(block, FactTable):
            texts = [*block.head, *(cell for row in block.rows for cell in row)]
        elif isinstance(block, HazardAnswer):
            texts = [block.title, block.text, LEVELS[block.level]]
        else:
            texts = [block.text] if isinstance(block, Paragraph) else []
        for text in texts:
            assert " ".join(text.split()) in written
            assert " ".join(text.replace("`", "").split()) in shown


def test_the_record_has_fields_of_the_schema_and_lists_the_others():
    facts = facts_of()
    record = record_of(facts)
    known = set()

    def walk(values, above):
        for name, value in values.items():
            path = f"{above}{name}"
            if path in FIELDS:
                known.add(path)
            else:
                assert isinstance(value, dict), path
                walk(value, f"{path}.")

    walk(record, "")
    assert known.isdisjoint(unknown_fields(record))
    assert known | set(unknown_fields(record)) == FIELDS.keys()
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {
        "epsilon": pytest.approx(facts.epsilon, rel=1e-5),
        "rho": 4.0,
        "delta": 2e-6,
    }
    text = to_registry(facts)
    assert yaml.safe_load(text) == record
    assert "# - deployment.basic.data_curators (required)" in text
    assert "# - deployment.basic.publication_date (required)" in text


CONFIG = """
[stream]
name = "rooms"
unit = "user"
user = "device"

[window]
length = "1h"
start = "2026-01-01T00:00:00Z"
end = "2026-01-02T00:00:00Z"

[release]
kind = "count"
rho = 0.01

[budget]
rho = 1.0
delta = 0.0

[ledger]
url = "postgresql://boss:hunter2@db/house"
"""
GOLDEN = Path(__file__).parent / "rooms.md"


def test_one_report_is_as_it_was(tmp_path):
    """Word for word. If it should change, run this test with FCSTREAM_WRITE=1 and read the difference."""
    import os

    (tmp_path / "c.toml").write_text(CONFIG)
    facts = collect(Config.load(tmp_path / "c.toml"), read_toml(tmp_path / "c.toml"), MADE)
    facts = dataclasses.replace(facts, versions=(("fcstream", "0.0"), ("Python", "3.0")))
    text = to_markdown(report_of(facts))
    if os.environ.get("FCSTREAM_WRITE"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


# -- the command -------------------------------------------------------------------------------------------------------


def call(*args):
    return CliRunner().invoke(main, [str(each) for each in args])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "start"), [("html", "<!DOCTYPE html>"), ("md", "# Privacy report"), ("registry", "# A ")]
)
def test_the_command(tmp_path, form, start):
    (tmp_path / "c.toml").write_text(CONFIG)
    shown = call("report", tmp_path / "c.toml", "--format", form)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith(start)
    assert shown.stderr == ""
    done = call("report", tmp_path / "c.toml", "--format", form, "--out", tmp_path / "report")
    assert done.stderr == f"wrote {tmp_path / 'report'}\n"
    assert (tmp_path / "report").read_text().startswith(start)


def test_the_command_overwrites_nothing_that_it_reads(tmp_path, spent):
    _, path = spent
    (tmp_path / "c.toml").write_text(CONFIG)
    assert call("report", tmp_path / "c.toml", "--out", tmp_path / "c.toml").exit_code == 2
    assert call("report", tmp_path / "c.toml", path, "--out", path).exit_code == 2
    assert "must hold the stream 'rooms'" in call("report", tmp_path / "c.toml", path).stderr
    assert call("report", tmp_path / "c.toml", "--out", tmp_path / "no" / "file").exit_code == 1
    assert (tmp_path / "c.toml").read_text() == CONFIG


def test_a_damaged_ledger_is_not_reported(spent):
    import sqlite3

    config, path = spent
    with sqlite3.connect(path) as db:
        db.execute("UPDATE journal SET rho = rho + 1 WHERE seq = 2")
    db.close()
    with pytest.raises(LedgerDamaged):
        read(config, path)

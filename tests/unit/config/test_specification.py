"""What a ledger is bound to: readable, canonical, and the same whatever keys are added to configurations later."""

import json

import msgspec
import pytest
from support.helpers import sample

from fcstream.config import Config
from fcstream.config.sections import FeatureSection, LatticeSection, StreamSection, WindowSection
from fcstream.config.specification import canonical
from fcstream.errors import LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.ledgers.terms_check import changes

FEATURES = (
    '"features":[{"max":80.0,"min":-40.0,"name":"a","origin":20.0},'
    '{"max":100.0,"min":0.0,"name":"b","origin":50.0,"scale":2.0}]'
)
START = '"start":"1970-01-01T00:00:00Z"'
# What ledgers hold. A change here makes somebody's ledger unusable.
PINNED = [
    (
        {},
        f'{{{FEATURES},"lattice":{{"step":0.001}},"release":{{"delta":1e-09,"kind":"mean","outliers":"leave_out","radius":3.0,'
        f'"rho":1.0,"size_hint":300}},"stream":{{"name":"t"}},"window":{{"length":"10s",{START}}}}}',
    ),
    (
        {
            "stream": {"unit": "user", "user": "who", "per_user": "mean"},
            "budget": {"rho": 40.0, "savings": "even"},
            "release": {"method": "friendly", "spread": 1},
        },
        f'{{"budget":{{"savings":"even"}},{FEATURES},"lattice":{{"step":0.001}},"release":{{"delta":1e-09,'
        '"kind":"mean","method":"friendly","radius":3.0,"rho":1.0,"size_hint":300,"spread":1.0},'
        '"stream":{"name":"t","per_user":"mean","unit":"user","user":"who"},'
        f'"window":{{"end":"1970-01-01T00:01:00Z","length":"10s",{START}}}}}',
    ),
    (
        {"release": {"kind": "count", "rho": 0.5, "radius": None, "delta": None}, "window": {"slide": "5000ms"}},
        f'{{{FEATURES},"lattice":{{"step":0.001}},"release":{{"kind":"count","rho":0.5,"size_hint":300}},'
        f'"stream":{{"name":"t"}},"window":{{"length":"10s","slide":"5s",{START}}}}}',
    ),
]


def terms(**changed):
    return Config.from_mapping(sample(**changed)).job.terms


@pytest.mark.parametrize(("changed", "text"), PINNED)
def test_specifications_stay_what_they_are(changed, text):
    assert terms(**changed).specification == text


def defaults(section):
    fields = [field for field in msgspec.structs.fields(section) if not field.required]
    plain = {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    return plain | {field.name: field.default_factory() for field in fields if field.name not in plain}


def test_a_key_that_is_added_later_changes_no_ledger_at_its_default():
    """Defaults that are written out leave no trace, of any key of any section."""
    bare = sample()
    sections = (("stream", StreamSection), ("window", WindowSection), ("lattice", LatticeSection))
    full = {name: defaults(section) | bare[name] for name, section in sections}
    full["features"] = [defaults(FeatureSection) | feature for feature in bare["features"]]
    full["release"] = {"pairs": "exact", "spread": "histogram", "method": "recentered", "outliers": 0.0} | bare[
        "release"
    ]
    assert Config.from_mapping(bare | full).job.terms.specification == terms().specification


def test_one_meaning_has_one_spelling():
    for same in (
        {"length": "10000ms"},
        {"slide": "10s"},
        {"start": "1970-01-01 01:00:00+01:00"},
        {"start": "1970-01-01"},
        {"end": "1970-01-02"},
        {"lateness": "3s"},
    ):
        assert terms(window=same).specification == terms().specification


def test_methods_with_the_same_keys_are_different_specifications():
    methods = ("recentered", "friendly", "tracking")
    told = [json.loads(terms(release={"method": method}).specification)["release"] for method in methods]
    assert [shape.get("method") for shape in told] == [None, "friendly", "tracking"]


@pytest.mark.parametrize("url", ["sqlite:l.db", "memory:"])
def test_an_error_about_another_specification_names_the_key_and_both_values(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger(url, terms())
    assert json.loads(ledger.terms.specification)["release"]["radius"] == 3.0
    ledger.close()
    if url == "memory:":
        return
    for changed, message in (
        ({"release": {"radius": 4.0}}, "`release.radius` changed from 3.0 to 4.0"),
        ({"lattice": {"step": 0.002}}, "`lattice.step` changed from 0.001 to 0.002"),
        ({"window": {"length": "20s"}}, "`window.length` changed from '10s' to '20s'"),
        ({"stream": {"time": "t"}}, "`stream.time` changed from its default to 't'"),
        ({"features": None}, "`features.a.max` changed from 80.0 to 70.0"),
    ):
        mapping = sample(**changed) if changed != {"features": None} else sample()
        if "features" in changed:
            mapping["features"][0]["max"] = 70.0
        with pytest.raises(LedgerMismatch) as refused:
            open_ledger(url, Config.from_mapping(mapping).job.terms)
        assert message in str(refused.value)


def test_a_setting_is_kept_once_for_all_parts_of_a_stream(tmp_path):
    made = {"stream": {"key": "room", "keys": ["a", "b"]}}
    job = Config.from_mapping(sample(**made)).job
    url = f"sqlite:{tmp_path / 'l.db'}"
    first, second = (open_ledger(url, job.part(key).terms) for key in ("a", "b"))
    assert first.setting("start") is None
    assert first.keep_setting("start", "2026-01-01T00:00:00Z") == "2026-01-01T00:00:00Z"
    assert second.keep_setting("start", "2026-01-02T00:00:00Z") == "2026-01-01T00:00:00Z"
    assert second.setting("start") == first.keep_setting("start", "another") == "2026-01-01T00:00:00Z"
    assert first.verify() == second.verify() == 1
    first.close()
    second.close()
    again = open_ledger(url, job.part("b").terms)
    assert again.setting("start") == "2026-01-01T00:00:00Z"
    again.close()


def test_changes_of_several_answers_name_the_answer_and_the_key():
    """Two long texts were shown instead, cut before they differed."""
    count, mean = {"kind": "count", "name": "n", "rho": 1.0}, {"kind": "mean", "name": "temp", "rho": 2.0}
    sums = {"kind": "sum", "name": "total", "rho": 1.0, "note": "x" * 300}

    def told(old, new):
        return [str(change) for change in changes(canonical({"release": old}), canonical({"release": new}))]

    assert told([count, mean], [count, mean | {"rho": 3.0}]) == ["`release[temp].rho` changed from 2.0 to 3.0"]
    assert told([count, mean], [count, mean, sums]) == ["`release[total]` was added"]
    assert told([count, mean, sums], [mean | {"rho": 3.0}, sums]) == [
        "`release[n]` was dropped",
        "`release[temp].rho` changed from 2.0 to 3.0",
    ]
    assert told([count, mean], [mean, count]) == ['`order of release` changed from ["n", "temp"] to ["temp", "n"]']
    (one,) = told([sums, {**sums, "name": "total2"}], [{**sums, "name": "total2"}])
    assert one == "`release[total]` was dropped"
    assert told(mean, [count, mean]) == ["`release[n]` was added"]
    (unnamed,) = told({"kind": "count", "rho": 1.0}, [count, mean])
    assert unnamed == '`release` changed from \'one answer without a name\' to ["n", "temp"]'
    (long,) = told([{"name": "a", "levels": "x" * 200 + "old"}], [{"name": "a", "levels": "x" * 200 + "new"}])
    assert "old" in long
    assert "new" in long
    assert len(long) < 200


def test_changes_of_lists_that_are_no_sections_are_reported_whole():
    (change,) = changes('{"release":{"levels":[1,2]}}', '{"release":{"levels":[1,3]}}')
    assert str(change) == "`release.levels` changed from [1, 2] to [1, 3]"
    assert len(str(changes('{"a":"x"}', '{"a":"%s"}' % ("y" * 1000))[0])) < 200

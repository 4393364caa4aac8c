"""Kinds of releases: found by name, checked key by key, and never changed behind a ledger's back."""

import pytest
from support.helpers import sample

from fcstream import Engine, Release, register_release
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.planning.plan import plan
from fcstream.releases.options import Options
from fcstream.releases.registry import KINDS, find
from fcstream.releases.statistics.count import CountOptions, NoisyCount

BARE_COUNT = {"kind": "count", "method": None, "radius": None, "spread": None, "delta": None, "size_hint": None}
LINES = [
    b'{"stream":"t","window_open_ms":0,"window_close_ms":10,"status":"refused","reason":"too_few","kind":"mean",'
    b'"value":null,"sigma":null,"count":7,"core_count":null,"rho":1.0,"delta":1e-9,"guarantee":{"rho":4.0,'
    b'"delta":1e-6},"spent":{"rho":1.0,"delta":1e-9},"private":true,"features":["a"],"transform":["none"]}',
    b'{"stream":"t","window_open_ms":0,"window_close_ms":10,"status":"released","reason":null,"kind":"mean",'
    b'"value":[2.5],"sigma":[0.5],"count":7,"core_count":6,"rho":1.0,"delta":0.0,"guarantee":{"rho":4.0,"delta":0.0},'
    b'"spent":{"rho":1.0,"delta":0.0},"private":true,"features":["a"],"transform":["none"],"track":{"center":[25],'
    b'"sigma":5.0,"reach":40.0,"across":30.0,"share":null,"drift":false}}',
    b'{"stream":"t","window_open_ms":0,"window_close_ms":10,"status":"released","reason":null,"kind":"count",'
    b'"value":[7.0],"sigma":[1.0],"count":7,"core_count":7,"rho":1.0,"delta":0.0,"guarantee":{"rho":4.0,"delta":0.0},'
    b'"spent":{"rho":1.0,"delta":0.0},"private":true,"features":null,"transform":null}',
]


@pytest.mark.parametrize("line", LINES)
def test_lines_of_the_first_version_are_read_and_written_byte_for_byte(line):
    assert Release.from_bytes(line).to_bytes() == line


# -- found by name -------------------------------------------------------------------------------------------------


class ScaledOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind of one's own: a count with a key more."""

    factor: int = 1

    def build(self, setting):
        if self.factor < 1:
            raise ConfigError(f"must be at least 1, got {self.factor}", "release.factor")
        return NoisyCount(self.pure_loss(), kind="scaled")


def scaled(**changes):
    return sample(release={**BARE_COUNT, "kind": "scaled", "rho": 0.5, **changes})


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_options_that_say_what_they_are(name):
    options = find(*name.split("/"))
    assert issubclass(options, Options)
    assert options.__doc__
    assert "build" in vars(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "maen"}, r"release\.kind: must be .*'mean'.* got 'maen': did you mean 'mean'\?"),
        ({"kind": 3}, r"release\.kind: must be .*got 3"),
        ({"method": "freindly"}, r"release\.method: must be 'recentered'.*: did you mean 'friendly'\?"),
        (
            {"kind": "count", "pairs": "exact"},
            r"release\.pairs: belongs to kind 'mean' or 'variance', not to 'count': leave it out",
        ),
        (
            {"method": "ball", "center": [1, 1], "alpha": 0.1},
            r"release\.alpha: belongs to method 'basic', not to 'ball': leave it out",
        ),
        ({"alpha": 0.1, "method": None}, r"release\.alpha: belongs to method 'basic', not to 'recentered'"),
        ({"method": "ball", "radius": "search"}, r"release\.radius: must be a number for method 'ball'"),
        ({"method": "ball", "radius_min": 1.0}, r"release\.radius_min: belongs to radius 'search' .* method 'ball'"),
        ({"kind": "count", "roh": 1}, r"release\.roh: is not a known key: did you mean 'rho'\?"),
        ({"rho": "much"}, r"release\.rho: must be a number, got text"),
        ({"rho": None}, r"release\.rho: is required"),
        ({"center": [1, "x"], "method": "ball"}, r"release\.center"),
    ],
)
def test_errors_name_the_key_and_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        Config.from_mapping(sample(release=changes))


@pytest.mark.parametrize("values", [None, 3, [], "mean"])
def test_a_release_that_is_no_section(values):
    with pytest.raises(ConfigError, match="release"):
        Config.from_mapping({**sample(), "release": values})


def test_a_kind_registered_in_code():
    with pytest.raises(ConfigError, match=r"release\.kind"):
        Config.from_mapping(scaled())
    register_release("scaled", ScaledOptions)
    register_release("scaled", ScaledOptions)  # a cell that is run again
    config = Config.from_mapping(scaled())
    assert Engine(config).close()[0].kind == "scaled"
    assert plan(config).lines()[0].startswith("stream 't': scaled per window")
    with pytest.raises(ConfigError, match=r"release\.factor"):
        Config.from_mapping(scaled(factor=0))
    with pytest.raises(ConfigError, match=r"release\.facto: is not a known key: did you mean 'factor'"):
        Config.from_mapping(scaled(facto=2))
    with pytest.raises(ConfigError, match=r"release\.radius: belongs to kind 'centers', 'mean', 'mixtures', 'points'"):
        Config.from_mapping(scaled(radius=2))
    # A default that is written out is no other stream; another value is.
    hashes = {k: Config.from_mapping(scaled(factor=k)).job.terms.specification for k in (1, 2)}
    assert config.job.terms.specification == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("name", "options"), [("count", ScaledOptions), ("mean/ball", ScaledOptions), ("x", NoisyCount)]
)
def test_names_that_cannot_be_registered(name, options):
    with pytest.raises(ConfigError, match=f"release kind '{name}'"):
        register_release(name, options)


def test_a_name_of_somebody_else_is_not_taken_over():
    register_release("mine", ScaledOptions)
    with pytest.raises(ConfigError, match="is taken"):
        register_release("mine", CountOptions)


def test_a_kind_of_another_package_is_found_through_its_entry_point(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_test.py").write_text(
        "from fcstream.releases.statistics.count import CountOptions, NoisyCount\n"
        "class Twice(CountOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):\n"
        "    def build(self, setting):\n"
        "        return NoisyCount(self.pure_loss(), kind='twice')\n"
        "nothing = 3\n"
    )
    info = tmp_path / "plugin_of_a_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fcstream.releases]\ntwice = plugin_of_a_test:Twice\nbroken = plugin_of_a_test:nothing\n"
        "mean/other = plugin_of_a_test:Twice\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    release = {**BARE_COUNT, "kind": "twice", "rho": 1.0}
    assert Engine(Config.from_mapping(sample(release=release))).close()[0].kind == "twice"
    assert Engine(Config.from_mapping(sample(release={**release, "kind": "mean", "method": "other"}))).close()
    with pytest.raises(ConfigError, match="release kind 'broken': its entry point must be a subclass of Options"):
        Config.from_mapping(sample(release={**release, "kind": "broken"}))
    with pytest.raises(ConfigError, match=r"release\.kind: must be .*'twice' or 'broken'|'broken' or 'twice'"):
        Config.from_mapping(sample(release={**release, "kind": "thrice"}))


def test_parts_are_reported_where_there_are_some_only():
    line = Release.from_bytes(LINES[2])
    assert line.parts is None
    told = Release(**{**line.as_dict(), "parts": {"edges": [0.5, 1.0]}, "value": [[1.0, 2.0]]})
    assert told.to_bytes() == LINES[2].replace(b"[7.0]", b"[[1.0,2.0]]")[:-1] + b',"parts":{"edges":[0.5,1.0]}}'
    assert Release.from_bytes(told.to_bytes()) == told

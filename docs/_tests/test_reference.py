"""What the code has, the built reference has: names are taken from the code by other ways than the generator's.

`FCSTREAM_SITE` names a built site; without it one is built here.
"""

import ast
import html.parser
import inspect
import os
import re
import subprocess
import sys
import zlib
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from support import REPOSITORY
from support.helpers import sample
from support.release_kinds import OF_TEXTS, RELEASES
from support.status import watched

import fcstream
from fcstream import Noise, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.errors import FcstreamError
from fcstream.ledgers import check_scheme
from fcstream.local import settings
from fcstream.releases import registry
from fcstream.releases.options import Options
from fcstream.releases.reasons import NO_INTERVAL
from fcstream.service.metrics import exposition

PACKAGE = Path(fcstream.__file__).parent
SOURCES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
PUBLIC = ("fcstream", "fcstream.local", "fcstream.predicates", "fcstream.synthetic", "fcstream.testing")
pytestmark = pytest.mark.timeout(1200)  # the first test may build the site
EVERYWHERE = Options.__struct_fields__  # keys of all kinds of releases


class Words(html.parser.HTMLParser):
    """The words of a page that are set as code or as names of entries, for each of its sections."""

    def __init__(self) -> None:
        super().__init__()
        self.words = defaultdict(set)
        self._sections, self._open, self._text = [""], [], ""

    def handle_starttag(self, tag, attrs):
        if tag == "section":
            self._sections.append(dict(attrs).get("id", ""))
        elif tag in ("code", "dt"):
            self._open.append(tag)
            self._text = ""

    def handle_endtag(self, tag):
        if tag == "section":
            self._sections.pop()
        elif self._open and tag == self._open[-1]:
            self._open.pop()
            for section in self._sections:
                self.words[section].add(self._text.strip().rstrip("¶#"))

    def handle_data(self, data):
        self._text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if built := os.environ.get("FCSTREAM_SITE"):
        return Path(built)
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", str(REPOSITORY / "docs"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def reference(site):
    """The words of a page by its name."""

    def read(page):
        words = Words()
        words.feed((site / "reference" / f"{page}.html").read_text())
        return words.words

    return read


@pytest.fixture(scope="module")
def index(site):
    """The site's index of names: kinds of objects to names."""
    _, packed = (site / "objects.inv").read_bytes().split(b"compressed using zlib.\n", 1)
    found = defaultdict(set)
    for line in zlib.decompress(packed).decode().splitlines():
        name, kind = re.match(r"(.+?) (\S+:\S+) ", line).groups()
        found[kind].add(name)
    return found


def lacking(names, found):
    """The names that are not there; the test fails for them."""
    return sorted(set(names) - set(found))


def keys_of(*sections):
    """Keys by section's class, from the JSON schema."""
    _, schemas = msgspec.json.schema_components(sections)
    return {name: set(schema.get("properties", ())) for name, schema in schemas.items()}


def constants(pattern, *folders, least=1):
    """What a pattern finds in the sources."""
    found = {
        name
        for path, text in SOURCES.items()
        if not folders or path.relative_to(PACKAGE).parts[0] in folders
        for name in re.findall(pattern, text)
    }
    assert len(found) >= least, f"the pattern {pattern} finds next to nothing"
    return found


def test_a_name_that_is_not_there_is_found():
    words = Words()
    words.feed(
        '<section id="a"><dl><dt>stream.<b>name</b>#</dt></dl></section><section id="b"><code>x</code></section>'
    )
    assert lacking(["stream.name", "x"], words.words["a"]) == ["x"]
    assert lacking(["stream.name", "stream.other", "x"], words.words["a"] | words.words["b"]) == ["stream.other"]


def test_keys_of_every_section(reference):
    words = reference("configuration")[""] | reference("configuration")["configuration"]
    components = keys_of(Config)
    sections = {
        name: re.findall(r"\w+Section", str(kind))[0]
        for name, kind in inspect.get_annotations(Config.__mro__[1]).items()
        if "Section" in str(kind)
    }
    assert len(sections) >= 11
    assert not lacking((f"{name}.{key}" for name, cls in sections.items() for key in components[cls]), words)


@pytest.mark.parametrize("name", registry.KINDS)
def test_keys_of_every_kind(name, reference):
    kind, _, method = name.partition("/")
    options = registry.find(kind, method or None)
    (keys,) = (keys for cls, keys in keys_of(options).items() if cls == options.__name__)
    words = reference("kinds")
    shown = {f"release.{key}" for key in EVERYWHERE} & words["kinds-of-releases"]
    ignored = {f"release.{key}" for key in options.without_effect if key in words[kind]}
    assert not lacking((f"release.{key}" for key in keys), words[kind] | shown | ignored)
    assert method in words[kind] | {""}


def test_a_kind_that_is_registered_is_in_the_table(reference):
    assert not lacking(
        (f'"{name.partition("/")[0]}"' for name in registry.KINDS), reference("kinds")["kinds-of-releases"]
    )
    assert issubclass(registry.find("mean"), Options)


def test_classes_of_sections(reference):
    from fcstream import sections

    words = set().union(*(found for page in ("configuration", "kinds") for found in reference(page).values()))
    names = [name for name, value in vars(sections).items() if getattr(value, "__name__", name) != name]
    assert len(names) > 15
    assert not lacking((f"fcstream.sections.{name}" for name in names), words)


def test_keys_of_devices(reference):
    words = reference("devices")["devices-that-hold-their-own-budget"]
    found: set[str] = set()
    for section, kinds in (
        ("components.NAME", settings.SPACES),
        ("budget", settings.BUDGETS),
        ("query", settings.QUERIES),
    ):
        classes = [one[0] if isinstance(one, tuple) else one for one in kinds.values()]
        found |= {f"{section}.{key}" for cls in classes for key in keys_of(cls)[cls.__name__]}
        found |= {f"{section}.kind", *kinds}
    for section, cls in (("devices", settings.DevicesSection), ("analyst", settings.AnalystSection)):
        found |= {f"{section}.{key}" for key in keys_of(cls)[cls.__name__]}
    assert not lacking(found, words)


def test_options_of_urls(reference):
    words = reference("connectors")["connectors"]
    declared = {
        node.args[0].value
        for path, text in SOURCES.items()
        if "connectors" in path.parts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UrlOption"
        if isinstance(node.args[0], ast.Constant)  # others have the name of an option that is declared elsewhere
    }
    assert len(declared) > 30
    assert not lacking(declared, words)


def test_schemes(reference):
    words = reference("connectors")["connectors"]
    table = SOURCES[PACKAGE / "connectors" / "registry.py"]
    schemes = re.findall(r'^    "([a-z+-]+)": _[A-Z]+,$', table, re.MULTILINE)
    assert len(schemes) > 10
    assert not lacking(schemes, words)
    files = {
        f"{name}:"
        for line in re.findall(r"^\w+_S(?:OURCE|INK)S = \((.*)\)$", table, re.MULTILINE)
        for name in re.findall(r'"([a-z-]+)"', line)
    }
    assert len(files) == 7
    assert not lacking(files, words)
    for url in ("sqlite:PATH", "postgresql://host/database", "memory:"):
        assert check_scheme(url)
        assert any(word.startswith(url.partition(":")[0] + ":") for word in words)


def commands(path=()):
    """Every command and the options that its help names."""
    text = CliRunner().invoke(main, [*path, "--help"], prog_name="fcstream", terminal_width=200).output
    yield path, set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text.partition("Options:")[2])) - {"help"}
    for name in re.findall(r"^  ([a-z][a-z-]*)", text.partition("Commands:\n")[2], re.MULTILINE):
        yield from commands((*path, name))


def test_commands_and_their_options(site, index):
    found = dict(commands())
    assert len(found) > 15
    page = (site / "reference" / "command-line.html").read_text()
    for path, options in found.items():
        name = "-".join(("fcstream", *path))
        assert f'id="{name}"' in page, " ".join(path)
        for option in options:
            assert f'id="cmdoption-{name}-{option}"' in page or f"{name}-{option}" in str(index["std:cmdoption"]), (
                f"{' '.join(path)} --{option}"
            )


def test_fields_of_releases(reference):
    from fcstream.testing import sample_release

    words = reference("releases")["fields-of-a-release"]
    always = set(msgspec.json.decode(sample_release().to_bytes()))
    later = set(inspect.signature(fcstream.Release).parameters)
    assert len(always) > 10
    assert not lacking(always | later, words)


@pytest.mark.parametrize("name", registry.KINDS)
def test_parts_of_a_release_of_every_kind(name, reference):
    """Of one that is made here: three clusters for the kinds that look for some, else one."""
    random, kind = np.random.default_rng(1), name.partition("/")[0]
    middles = np.array([[0.0, 10.0], [20.0, 50.0], [35.0, 90.0]])
    which = random.integers(0, 3, 4000) if kind in ("centers", "mixtures") else np.ones(2000, int)
    schedule = {"window": {"end": "1970-01-01T00:00:10Z"}, "budget": {"rho": 400.0, "delta": 1e-4}}
    config = sample(release=(OF_TEXTS.get(name) or RELEASES[name][0]), **schedule)
    points = middles[which] + random.normal(0, 0.3, (len(which), 2))
    if name in OF_TEXTS:
        config["features"], points = [{"name": "app", "type": "text"}], which.astype(str)
    engine = fcstream.Engine(config, noise=Noise(SeededEntropy(3)))
    engine.push(np.full(len(which), 1000), points)
    (release,) = engine.close()
    assert release.status == "released" or name == "covariance/friendly"  # which takes millions of records
    words = reference("kinds")[kind]
    own = set(release.parts or ()) - {"no_interval"}  # every kind may have it: it stands with the fields of a release
    assert not lacking((f"parts.{part}" for part in own), words)
    assert not lacking({"track"} if release.track else set(), words)


def test_reasons_of_refusals(reference):
    words = reference("reasons")["of-windows"]
    made = constants(r'(?:Outcome|refusal)\(\s*"([a-z_]+)"', least=4) | constants(
        r'"(no_(?!interval)[a-z]+)"', "releases", least=3
    )
    assert not lacking(made, words)


def test_reasons_of_missing_intervals(reference):
    assert not lacking(NO_INTERVAL, reference("reasons")["of-missing-intervals"])


def test_reasons_of_rejections(reference):
    words = reference("reasons")["of-records"]
    made = constants(r'(?:Rejection|UnusableRecord)\(\s*"([a-z_]+)"', least=6)
    made |= constants(r'reject\([^"\n]*"([a-z_]+)"', least=4)
    assert not lacking(made, words)


def test_reasons_of_devices(reference):
    words = reference("reasons")["of-devices"]
    made = constants(r'refused\(\s*"([a-z_]+)"', "local", least=6)
    made |= {"other_space", "function"} & constants(r'return "([a-z_]+)"', "local")
    assert len(made) > 7
    assert not lacking(made, words)


def test_metrics(reference):
    words = reference("metrics")["metrics-status-and-log"]
    text = exposition([watched(counters=True)])[0].decode()
    names = {name for name in re.findall(r"^# HELP (\S+)", text, re.MULTILINE) if not name.startswith("process_")}
    assert len(names) > 20
    assert not lacking(names, words)
    assert not lacking(re.findall(r'fcstream_\w+{[^}]*?(\w+)="', text), words)


def test_keys_of_the_log_and_kinds_of_warnings(reference):
    words = reference("metrics")["metrics-status-and-log"]
    (extras,) = re.findall(r"^_EXTRAS = \((.*)\)$", SOURCES[PACKAGE / "service" / "logs.py"], re.MULTILINE)
    assert not lacking([*re.findall(r'"(\w+)"', extras), "time", "level", "logger", "event"], words)
    kinds = constants(r'_(?:health\.)?warn\(\s*"([a-z]+)",', "service") | constants(
        r'kind: str = "([a-z]+)"', "service"
    )
    kinds |= constants(r'warnings\["([a-z]+)"\]', "service")
    assert len(kinds) > 4
    assert not lacking(kinds, words)


def test_exit_codes(site, reference):
    def below(cls):
        return {cls}.union(*(below(one) for one in cls.__subclasses__() if one.__module__ == FcstreamError.__module__))

    words = reference("exit-codes")["exit-codes"]
    assert not lacking((one.__name__ for one in below(FcstreamError)), words)
    page = (site / "reference" / "exit-codes.html").read_text()
    for code in {one.exit_code for one in below(FcstreamError)} | {0, 130}:
        assert re.search(rf"\b{code}\b", page)


def test_environment_variables(reference):
    words = reference("environment")["environment-variables"]
    read = constants(r'environ(?:\.get|\.setdefault)?[\[(]"([A-Z_]+)"', least=4)
    read |= constants(r'(?m)^VARIABLE = "([A-Z_]+)"') | constants(r'values\.get\("([A-Z_]+)"', "service", least=3)
    assert not lacking({name for name in read if not name.startswith("PG")} | {"PGHOST", "PGSSLMODE"}, words)


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names(package, index, site):
    """By what the stub or the module binds, and the names that Sphinx has entries for."""
    module = sys.modules.get(package) or __import__(package, fromlist=["_"])
    path = Path(module.__file__)
    tree = ast.parse((path.with_suffix(".pyi") if path.with_suffix(".pyi").exists() else path).read_text())
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    if package == "fcstream.testing":
        names = {
            node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_"
        }
    names = {name for name in names if name[0] != "_"} - {"lazy_names"}
    assert len(names) >= 2
    entries = set().union(*(found for kind, found in index.items() if kind.startswith("py:")))
    also = {name for name in names if f"fcstream.{name}" in entries}
    told = (site / "reference" / "api" / "index.html").read_text()
    for name in names:
        assert f"{package}.{name}" in entries or (name in also and f"{package}.{name}" in told), f"{package}.{name}"

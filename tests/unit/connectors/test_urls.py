import random
import re

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.cli.templates import template
from fcstream.connectors import open_dead_letter, open_sink, open_source
from fcstream.connectors.urls import mask, parse
from fcstream.errors import ConfigError


def test_parts():
    it = parse("kafka://me:p%40ss@one:9092,two,[::1]:7/a%2Fb?group=g&x=1", "source.url")
    assert it.hosts == (("one", 9092), ("two", None), ("::1", 7))
    assert (it.user, it.password, it.path) == ("me", "p@ss", "a/b")
    assert it.take("group") == "g"
    assert it.take_number("y", 2.5) == 2.5
    with pytest.raises(ConfigError, match="unknown option 'x'"):
        it.finish()
    assert it.listing(9) == "one:9092,two:9,::1:7"


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:SECRET@h/0",
        "redis://u:SEC/RET@h",
        "redis://u:SE@CRET@h",
        "nats://SECRET@h",
        "postgresql://u:SEC?RET@h/d",
        "https://h/?fcstream.bearer=SECRET",
        "http://h/?fcstream.token=SECRET&x=1",
        "kafka://h/t?sasl.password=SECRET",
        # Malformed, so that a parser sees the password elsewhere.
        "redis://:P@SEC#RET@h",
        "redis://:SEC[RET@h",
        "redis://u:SEC#RET@h/0",
        "redis://u:1/SECRET@h",
        "redis://u:1?SECRET@h",
        "redis://u:SECRET/0",
        "redis://u:SECRET",
        "redis:u:SECRET@h",
        # Options that are misspelled, or that no connector has.
        *(
            f"kafka://h/t?group=g&{name}=SECRET"
            for name in ("pwd", "auth", "sig", "jwt", "pass", "passwrd", "PASSWORD")
        ),
        "kafka://h/t?sasl.password=x&SECRET",
        "kafka://h/t?sasl.password=x&SECRET=y",
        # Where a path should be.
        "csv://u:SECRET@h",
        "csv:///u:SECRET@h",
        "jsonl: //u:SECRET@h",
        "jsonl:rediss://u:SECRET@h/0?stream=x",
        "jsonl: rediss ://u:SECRET@h",
        "sqlite:postgresql://u:SECRET@h/d",
        " rediss://u:SECRET@h",
        "REDISS://u:SECRET@h",
    ],
)
def test_secrets_are_masked(url):
    assert "SEC" not in mask(url)
    assert "CRET" not in mask(url)
    with pytest.raises(ConfigError) as caught:
        parse(url + ("&" if "?" in url else "?") + "odd=1", "sink.url").take("missing")
    assert "SEC" not in str(caught.value)
    assert "CRET" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        parse(url + ("&" if "?" in url else "?") + "odd=1", "sink.url").finish()
    assert "SEC" not in str(caught.value)
    assert "CRET" not in str(caught.value)
    assert "SECRET" not in repr(parse("redis://u:SECRET@h/0?token=SECRET", "sink.url"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("kafka://one:9092,two,[::1]:7/topic?group=g", "kafka://one:9092,two,[::1]:7/topic?group=g"),
        ("redis://u:p@h:1/k?group=g&token=t", "redis://***@h:1/k?group=g&token=***"),
        ("redis://${USER}:${file:/run/secrets/p@ss}@${HOST}/k", "redis://***@${HOST}/k"),
        ("mqtt://h/a/#", "mqtt://***"),
        ("jsonl:/data/a@b.jsonl", "jsonl:/data/a@b.jsonl"),
        ("csv:///data/dt=1/x.csv", "csv:///data/dt=1/x.csv"),
        ("csv:s3a://bucket/x.csv", "csv:s3a://bucket/x.csv"),
    ],
)
def test_what_is_no_secret_is_shown(url, shown):
    assert mask(url) == shown


@pytest.mark.parametrize("opened", [lambda url: open_source(url, None), open_sink, open_dead_letter])
@pytest.mark.parametrize("url", ["rediss2://u:SECRET@h/0", "redis2:u:SECRET@h", "u/SECRET"])
def test_a_mistyped_scheme_shows_no_password(opened, url):
    with pytest.raises(ConfigError) as caught:
        opened(url)
    assert "SECRET" not in str(caught.value) or "u/SECRET" in url  # the last is a path, without a secret
    for command in (["budget", "show", url], ["budget", "releases", url], ["plot", url]):
        said = CliRunner().invoke(main, command)
        assert said.exit_code in (1, 2)
        assert "SECRET" not in said.output or "u/SECRET" in url


SAMPLE = template()
MISTYPED = [
    "rediss2://u:SECRET@h",
    "kafka2://u:SECRET@h/t?group=g",
    "REDISS://u:SECRET@h",
    " rediss://u:SECRET@h",
    "csv://u:SECRET@h",
    "csv:///u:SECRET@h",
    "jsonl:rediss://u:SECRET@h/0?stream=x",
    "jsonl: //u:SECRET@h",
]


@pytest.mark.slow
@pytest.mark.parametrize("url", MISTYPED)
@pytest.mark.parametrize("command", [["run"], ["check"], ["doctor"]])
@pytest.mark.parametrize("clock", ["eof", "broker"])
def test_no_command_shows_the_password_of_a_mistyped_source(url, command, clock, tmp_path, monkeypatch):
    """The rest of the URL was taken for the path of a file, and told as one that cannot be read."""
    monkeypatch.chdir(tmp_path)
    text = SAMPLE.replace('clock = "eof"', f'clock = "{clock}"').replace("jsonl:telemetry.jsonl", url)
    (tmp_path / "job.toml").write_text(text)
    said = CliRunner().invoke(main, [*command, "job.toml"])
    assert said.exit_code in (1, 2)
    assert "SECRET" not in said.output
    assert "'jsonl:PATH' or 'csv:PATH'" in said.output
    assert not list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize("old", ["jsonl:-", "sqlite:ledger.db", "jsonl:letters.jsonl"])
@pytest.mark.parametrize("rest", ["//u:SECRET@h", "rediss://u:SECRET@h/0?stream=x"])
def test_no_command_shows_the_password_of_a_url_where_a_path_should_be(old, rest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scheme = old.partition(":")[0]
    text = SAMPLE + '\n[dead_letter]\nurl = "jsonl:letters.jsonl"\n'
    (tmp_path / "job.toml").write_text(text.replace(f'"{old}"', f'"{scheme}:{rest}"'))
    (tmp_path / "telemetry.jsonl").touch()
    for command in (["run", "--unchecked"], ["doctor"]):
        said = CliRunner().invoke(main, [*command, "job.toml"])
        assert said.exit_code in (1, 2)
        assert "SECRET" not in said.output
        assert re.search(rf"must be .*'{scheme}:PATH'", said.output)


@pytest.mark.slow
def test_urls_of_any_text_raise_nothing_but_the_errors_of_the_package():
    """10,000 mutations of URLs with a login and an option: what is still marked as one of them is not shown."""
    rng = random.Random(5)
    seeds = [
        "redis://u:L0GIN@h:1/k?group=g&x=OPT1ON",
        "postgresql://u:L0GIN@h:5432/d?schema=s&password=OPT1ON",
        "https://u:L0GIN@h/p?fcstream.bearer=OPT1ON",
        "kafka://a,b:9/t?security=ssl&sasl.password=OPT1ON",
    ]
    signs = [*"@:/?#&=[]%,$ {}.\x00\n\u20ac", "://", "${", "%zz", "***"]
    for _ in range(10_000):
        text = rng.choice(seeds)
        for _ in range(rng.randint(1, 4)):
            spots = [i for i in range(len(text)) if not re.search(r"L0GIN|OPT1ON", text[max(0, i - 5) : i + 6])]
            at = rng.choice([*spots, text.find("L0GIN"), text.find("OPT1ON"), len(text)])
            text = text[:at] + rng.choice(signs) + text[at + (at in spots and rng.random() < 0.5) :]
        try:
            parse(text, "source.url").finish()
        except ConfigError as error:
            said = str(error)
        else:
            said = mask(text)
        assert "L0GIN" not in said or not re.search(":L0GIN|L0GIN@", text), text
        assert "OPT1ON" not in said or "=OPT1ON" not in text, text


def test_secrets_come_from_outside(tmp_path, monkeypatch):
    (tmp_path / "key").write_text("fi/le\n")
    monkeypatch.setenv("NAME", "a@b:c")
    it = parse(f"redis://u:${{NAME}}@h?token=${{file:{tmp_path}/key}}", "source.url")
    assert (it.password, it.hosts, it.options) == ("a@b:c", (("h", None),), {"token": "fi/le"})
    assert "a@b" not in it.masked
    with pytest.raises(ConfigError, match="variable ABSENT"):
        parse("redis://u:${ABSENT}@h", "source.url")
    with pytest.raises(ConfigError, match="cannot be read"):
        parse("redis://u:${file:/absent}@h", "source.url")


@pytest.mark.parametrize(
    "url", ["redis://", "redis://:1", "redis://h:99999999", "redis://a b:x", "amqp://a..b/", f"mqtt://{64 * 'x'}.org/t"]
)
def test_no_host(url):
    with pytest.raises(ConfigError, match="must have a host"):
        parse(url, "source.url")


def test_secrets_of_a_ledger(tmp_path, monkeypatch):
    """Whatever they hold, they are read as they are, and no message or place shows them."""
    pytest.importorskip("psycopg")
    from fcstream.ledgers.postgres.connection import ServerAddress

    secret = "p@ss/w?rd:&=#%41 ${X}"
    (tmp_path / "user").write_text("me@home\n")
    monkeypatch.setenv("LEDGER_PASSWORD", secret)
    url = f"postgresql://${{file:{tmp_path}/user}}:${{LEDGER_PASSWORD}}@db:5433/telemetry?schema=s"
    address = ServerAddress.of(url)
    assert address.parameters["password"] == secret
    assert (address.parameters["user"], address.parameters["host"], address.schema) == ("me@home", "db", "s")
    assert secret not in address.location("x") + repr(address)
    assert "me@home" not in address.location("x") + repr(address)
    monkeypatch.delenv("LEDGER_PASSWORD")
    with pytest.raises(ConfigError, match=r"ledger\.url: names the variable LEDGER_PASSWORD, which is not set"):
        ServerAddress.of(url)

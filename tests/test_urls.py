import pytest

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
    ],
)
def test_secrets_are_masked(url):
    assert "SEC" not in mask(url)
    assert "CRET" not in mask(url)
    with pytest.raises(ConfigError) as caught:
        parse(url + ("&" if "?" in url else "?") + "odd=1", "sink.url").take("missing")
    assert "SEC" not in str(caught.value)
    assert "CRET" not in str(caught.value)
    assert "SECRET" not in repr(parse("redis://u:SECRET@h/0", "sink.url"))


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
    from fcstream.ledgers.sessions import Address

    secret = "p@ss/w?rd:&=#%41 ${X}"
    (tmp_path / "user").write_text("me@home\n")
    monkeypatch.setenv("LEDGER_PASSWORD", secret)
    url = f"postgresql://${{file:{tmp_path}/user}}:${{LEDGER_PASSWORD}}@db:5433/telemetry?schema=s"
    address = Address.of(url)
    assert address.parameters["password"] == secret
    assert (address.parameters["user"], address.parameters["host"], address.schema) == ("me@home", "db", "s")
    assert secret not in address.place("x") + repr(address)
    assert "me@home" not in address.place("x") + repr(address)
    monkeypatch.delenv("LEDGER_PASSWORD")
    with pytest.raises(ConfigError, match=r"ledger\.url: names the variable LEDGER_PASSWORD, which is not set"):
        Address.of(url)

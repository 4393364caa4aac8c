"""The options that connectors declare are those that they take."""

import inspect

import pytest

from fcstream.connectors import registry
from fcstream.connectors.urls import Address, UrlOption, parse
from fcstream.errors import FcstreamError

ROLES = ("source", "queue", "sink")
# Of several schemes of one class the last one is taken, which has TLS.
CASES = {
    getattr(connector, role): (scheme, role)
    for scheme, connector in registry.CONNECTORS.items()
    for role in ROLES
    if getattr(connector, role)
}
GIVEN = {"stream": "s", "queue": "q", "subject": "s", "tls": "yes", "replicas": "1", "patience": "0.01", "bucket": "b"}
BY_A_RULE = {"...", "fcstream.header.NAME", "header.NAME"}
NOT_BOTH = {"queue", "routing_key"}


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "role"), CASES.values(), ids=CASES)
def test_options_are_declared_where_they_are_taken(scheme, role, monkeypatch):
    connector = registry.find(scheme, role)
    declared = {option.name: option for option in connector.url_options}
    query = "&".join(f"{name}={GIVEN[name]}" for name in declared if name in GIVEN)
    address = parse(f"{scheme}://127.0.0.1:1/{'0' if scheme == 'rediss' else 'name'}?{query}", "source.url")
    taken, take = {}, Address.take

    def record(self, option, default=None):
        assert isinstance(option, UrlOption), f"{option!r} is not declared"
        taken[option.name] = option
        return take(self, option, default)

    monkeypatch.setattr(Address, "take", record)
    try:  # nobody listens at port 1: what is found out after all options were taken
        patience = {"patience_s": 0.01} if "patience_s" in inspect.signature(connector).parameters else {}
        connector(address, *(() if role == "sink" else ("consumer",)), **patience).close()
    except FcstreamError:
        assert address.options == {}
    assert set(taken) - NOT_BOTH == set(declared) - BY_A_RULE - NOT_BOTH
    assert all(declared[name] == option for name, option in taken.items())


def test_there_are_connectors_of_every_role():
    assert {role for _, role in CASES.values()} == set(ROLES)

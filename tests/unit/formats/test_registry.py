"""The registry of formats: every row can be loaded, and keys of `[source]` are checked against the format."""

from typing import get_args

import msgspec
import pytest

from fcstream.config import SourceSection
from fcstream.errors import ConfigError
from fcstream.formats import payloads, registry
from fcstream.formats.batch import Batch, Rejection, Schema
from fcstream.formats.bounds import LONGEST_MESSAGE
from fcstream.formats.payloads import decoder_for

SCHEMA = Schema("ts", "ms", ("a",))


def test_the_names_that_a_configuration_may_write_are_the_rows():
    assert list(get_args(registry.FormatName)) == list(registry.FORMATS)


def test_every_key_of_a_format_is_one_of_the_source_and_absent_by_default():
    fields = {field.name: field.default for field in msgspec.structs.fields(SourceSection)}
    for row in registry.FORMATS.values():
        assert set(row.required) <= set(row.keys)
        assert not any(fields[key] for key in row.keys)
        assert bool(row.package) == bool(row.extra)
    assert SourceSection(url="redis://localhost/x").format_options() == {}


def test_keys_are_checked_against_the_format(monkeypatch):
    def maker(schema, *, names=None, header=None):
        return (schema, names, header)

    monkeypatch.setattr(payloads, "test_maker", maker, raising=False)
    row = registry.Format("payloads:test_maker", keys=("names", "header"), required=("names",), holds_rows=True)
    monkeypatch.setitem(registry.FORMATS, "listed", row)
    assert decoder_for("listed", SCHEMA, {"names": "x"}) == (SCHEMA, "x", None)
    with pytest.raises(ConfigError, match=r"^source\.names: is required with format = 'listed'$"):
        decoder_for("listed", SCHEMA, {"header": "x"})
    with pytest.raises(ConfigError, match=r"^source\.names: belongs to format = 'listed', the format is 'json'"):
        decoder_for("json", SCHEMA, {"names": "x"})
    with pytest.raises(ConfigError, match=r"^source\.format: must be one of .* got 'xml'"):
        decoder_for("xml", SCHEMA)


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch):
    row = registry.Format("nothing_there:maker", "a-library", "arrow")
    monkeypatch.setitem(registry.FORMATS, "odd", row)
    with pytest.raises(ConfigError, match=r"^source\.format: needs the package a-library: .*\[arrow\]"):
        decoder_for("odd", SCHEMA)


def test_messages_that_are_too_long_are_rejected_unread():
    good, long = b'{"ts":1,"a":2}', b'{"ts":1,"a":2}'.ljust(LONGEST_MESSAGE + 1)
    batch = decoder_for("json", SCHEMA).decode([long, good, b"{", good, long], 10)
    assert isinstance(batch, Batch)
    assert batch.positions.tolist() == [11, 13]
    assert batch.rejections == [Rejection("broken_record", position) for position in (10, 12, 14)]

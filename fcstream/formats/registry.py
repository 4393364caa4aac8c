"""The formats of messages: one row for each, with what makes its decoder and which keys of `[source]` it takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ..errors import ConfigError, needs_package

if TYPE_CHECKING:
    from .batch import Schema
    from .decoders import LineDecoder

# fmt: off
FormatName = Literal[
    "json", "msgpack", "floats", "arrow", "influx", "senml", "senml-cbor", "avro", "protobuf", "cbor", "otlp-metrics",
    "otlp-logs",
]
# fmt: on
"""The formats that a configuration may name; each has a row in `FORMATS`."""


class Format(NamedTuple):
    """How the messages of one format are decoded.

    Attributes
    ----------
    maker : str
        ``module:function`` of this package. The function takes a `Schema`, and the given keys by name; it returns a
        `LineDecoder`. Its module may import `package` at its top: it is loaded only when the format is used.
    package : str
        The library that the module needs; empty for none.
    extra : str
        The extra of this package that brings the library.
    keys : tuple of str
        Keys of `[source]` that belong to the format, besides those of every source.
    required : tuple of str
        Those of `keys` without which no decoder can be made.
    headers : tuple of (str, str)
        Headers of messages that the decoder reads itself, each behind the key that makes it do so.
    holds_rows : bool
        Whether a message may hold many records. Its decoder then limits how many it reads.
    shares_values : bool
        Whether a record of a message may hold values of others, so that it decides how they are read.
    reads_whole : bool
        Whether a message of many records is read whole: one that cannot be read takes the others with it, or decides
        which values make a record.
    is_line : bool
        Whether a message is text that can stand on one line, so that a pipe can bring it.
    isolates_elements : bool
        Whether an element of `[source] records` that cannot be read leaves the others of its message readable (see
        specification 8.10); `plan` says accordingly what is protected.
    """

    maker: str
    package: str = ""
    extra: str = ""
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    holds_rows: bool = False
    shares_values: bool = False
    reads_whole: bool = False
    is_line: bool = False
    isolates_elements: bool = False


_ID = "__value_schema_id"
FORMATS: dict[str, Format] = {
    "json": Format("payloads:json_messages", is_line=True, isolates_elements=True),
    "msgpack": Format("payloads:msgpack_messages", isolates_elements=True),
    "floats": Format("payloads:float_messages", holds_rows=True),
    "arrow": Format("payloads:arrow_messages", "pyarrow", "arrow", holds_rows=True),
    "influx": Format(
        "influx_lines:line_messages",
        "line-protocol-parser",
        "influx",
        ("measurement",),
        holds_rows=True,
        is_line=True,
    ),
    "senml": Format("senml:senml_messages", keys=("joined",), holds_rows=True, shares_values=True, is_line=True),
    "senml-cbor": Format(
        "senml_cbor:senml_cbor_messages", "cbor2", "cbor", ("joined",), holds_rows=True, shares_values=True
    ),
    "avro": Format("avro:messages", "fastavro", "avro", ("registry", "schema_file"), headers=(("registry", _ID),)),
    "protobuf": Format(
        *("protobuf:messages", "protobuf", "protobuf"),
        ("schema_file", "message", "framing"),
        ("schema_file", "message"),
        (("framing", _ID),),
    ),
    "cbor": Format("cbor:messages", "cbor2", "cbor"),
    "otlp-metrics": Format(
        "otlp:metrics", "opentelemetry-proto", "otlp", ("delta_sums",), holds_rows=True, reads_whole=True
    ),
    "otlp-logs": Format("otlp:logs", "opentelemetry-proto", "otlp", holds_rows=True, reads_whole=True),
}
OPTION_KEYS = tuple(dict.fromkeys(key for each in FORMATS.values() for key in each.keys))
"""The keys of `[source]` that belong to some format."""


def find(name: str) -> Format:
    """Return the row of a format.

    Raises
    ------
    ConfigError
    """
    if name not in FORMATS:
        raise ConfigError(f"must be one of {list(get_args(FormatName))}", "source.format", got=name)
    return FORMATS[name]


def make_decoder(name: str, schema: Schema, options: Mapping[str, Any]) -> LineDecoder:
    """Make the decoder of a format with the given keys of `[source]`.

    Raises
    ------
    ConfigError
        A key that belongs to other formats, one that is missing, or a library that is not installed.
    """
    row = find(name)
    for key in options:
        if key not in row.keys:
            owners = [repr(other) for other, each in FORMATS.items() if key in each.keys]
            raise ConfigError(
                f"belongs to format = {' or '.join(owners)}, the format is {name!r}",
                f"source.{key}",
                remedy="leave it out",
            )
    for key in row.required:
        if key not in options:
            raise ConfigError(f"is required with format = {name!r}", f"source.{key}")
    module, _, function = row.maker.partition(":")
    with needs_package(row.package, row.extra, "source.format") if row.package else nullcontext():
        maker = getattr(import_module(f"{__package__}.{module}"), function)
    return maker(schema, **options)  # type: ignore[no-any-return]

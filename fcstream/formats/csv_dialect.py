"""How a CSV file is written: what separates its cells, its decimal sign, its encoding and its header."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from ..errors import ConfigError

BOM = b"\xef\xbb\xbf"
_NO_FILES = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined")
_NEVER = '"\r\n\0'


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """What a configuration says of a CSV file.

    Attributes
    ----------
    delimiter : str
        What separates cells, one ASCII character.
    decimal : str
        Decimal sign, ``.`` or ``,``. With a comma a number with a point is refused, since the point may group digits.
    encoding : str
        Any text encoding of Python. Bytes that are none of its characters stay no text, and damage their own record
        alone.
    header : tuple of str
        Names of the columns of a file without a header line; empty if the first line names them.

    Raises
    ------
    ConfigError
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        delimiter = self.delimiter
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in _NEVER or delimiter.isalnum():
            raise ConfigError("must be one character such as ';' or '\\t'", "source.delimiter", got=delimiter)
        if self.decimal not in (".", ","):
            raise ConfigError("must be '.' or ','", "source.decimal", got=self.decimal)
        if delimiter == self.decimal:
            raise ConfigError(
                f"must not be the decimal sign {delimiter!r} too",
                "source.delimiter",
                remedy="set `source.decimal` or `source.delimiter`",
            )
        try:
            b" ".decode(self.encoding, "replace")
        except UnicodeError:  # one byte is no character of some encodings
            pass
        except (LookupError, ValueError):
            raise ConfigError(
                "must be a text encoding that Python knows, such as 'latin-1'", "source.encoding", got=self.encoding
            ) from None
        if self._name in _NO_FILES:
            raise ConfigError("must be an encoding of files", "source.encoding", got=self.encoding)
        if len(set(self.header)) < len(self.header):
            raise ConfigError("must name each column once", "source.header")

    @property
    def _name(self) -> str:
        return codecs.lookup(self.encoding).name

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes of a file are read as they are."""
        return self._name in ("utf-8", "utf-8-sig", "ascii")

    def to_utf8(self) -> Transcoder | None:
        """Make what converts the bytes of a file to UTF-8; None if they are UTF-8."""
        return None if self.is_utf8 else Transcoder(self.encoding)

    def point(self, cell: str) -> str:
        """Return the text of a number with a decimal point; a text that is no number for one with a point already."""
        return _NO_NUMBER if "." in cell else cell.replace(",", ".")


COMMAS = CsvDialect()
_NO_NUMBER = "?"


class Transcoder:
    """Converts the blocks of a file from an encoding to UTF-8; what is no character becomes a byte that is no UTF-8."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)(_INVALID)

    def __call__(self, block: bytes) -> bytes:
        """Convert the next block; an empty one ends the file."""
        return self._decoder.decode(block, final=not block).encode("utf-8", "surrogateescape")


def _one_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


_INVALID = "fcstream.invalid"
codecs.register_error(_INVALID, _one_byte)

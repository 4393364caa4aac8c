"""The secret key under which users' names are hashed: it lies beside the ledger or in the environment, never in it.

So nobody can try names with a copy of the ledger alone. The ledger keeps a check value of the key, by which a wrong key
is found before anything is charged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from typing import NamedTuple, Protocol

from ..errors import ConfigError, LedgerError, LedgerMismatch
from ..noise.samplers import Noise, SystemEntropy
from ..runtime.disk import sync_folder, write_all
from ..runtime.undo import on_error
from .base import Ledger, Terms

SETTING = "user_key"
"""Name of the setting that holds the key's check value."""
SUFFIX = ".user-key"
_OPTION = "ledger.user_key"
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_DIGITS = "64 hexadecimal digits, as `openssl rand -hex 32` prints them"


class _Kept(Protocol):
    """A ledger, or a reader of one."""

    @property
    def terms(self) -> Terms: ...

    def setting(self, key: str) -> str | None: ...


class UserKeyPlace(NamedTuple):
    """Where the key of a ledger lies: ``file`` and a path, or ``env`` and the name of a variable."""

    kind: str
    name: str

    @classmethod
    def of(cls, url: str, user_key: str | None) -> UserKeyPlace | None:
        """Return the place that a configuration names, or else the file beside a ledger in SQLite.

        Returns None for a ledger in memory: its key is one of the process.

        Raises
        ------
        ConfigError
        """
        if user_key is not None:
            kind, _, name = user_key.partition(":")
            if kind not in ("file", "env") or not name or "\0" in name or (kind == "env" and "=" in name):
                raise ConfigError("must be 'file:PATH' or 'env:NAME'", _OPTION)
            return cls(kind, name)
        kind, _, location = url.partition(":")
        if kind == "memory":
            return None
        if kind != "sqlite":
            raise ConfigError(
                "is required with this ledger where users have one filter for all keys: 'file:PATH' or 'env:NAME', the "
                "same key for all processes, and not in the database",
                _OPTION,
            )
        return cls("file", f"{os.path.realpath(location)}{SUFFIX}")

    @property
    def text(self) -> str:
        return self.name if self.kind == "file" else f"the environment variable {self.name}"

    def read(self) -> bytes | None:
        """Read the key (32 bytes); None if a file is absent.

        Raises
        ------
        ConfigError, LedgerError
            None of these shows what is there.
        """
        if self.kind == "env":
            text = os.environ.get(self.name)
            if text is None:
                raise ConfigError(f"the environment variable {self.name} is not set", _OPTION)
        else:
            try:
                file = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                with on_error(os.close, file):
                    mode = os.fstat(file).st_mode
                    text = os.read(file, 100).decode("latin-1") if stat.S_ISREG(mode) else ""
                os.close(file)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise LedgerError(f"{self.name} cannot be read: {error.strerror}") from None
            if stat.S_ISREG(mode) and mode & 0o077:
                raise LedgerError(f"{self.name} can be read by others", remedy=f"chmod 600 {self.name}")
        if not _HEX.fullmatch(text.strip()):
            raise ConfigError(f"{self.text} must hold {_DIGITS}, and holds something else", _OPTION)
        return bytes.fromhex(text.strip())

    def make(self) -> bytes:
        """Make a key in a new file, whole and on disk, unless another process makes one first; return what is there.

        Raises
        ------
        ConfigError, LedgerError
        """
        entropy = SystemEntropy()
        fresh = f"{self.name}.{os.getpid()}.{entropy.words(1).tobytes().hex()}"
        try:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(file, entropy.words(4).tobytes().hex().encode() + b"\n")
                os.fsync(file)
                with contextlib.suppress(FileExistsError):
                    os.link(fresh, self.name)
            finally:
                os.close(file)
                os.unlink(fresh)
            sync_folder(os.path.dirname(self.name) or ".")
        except OSError as error:
            raise LedgerError(
                f"{self.name} cannot be made: {error.strerror}",
                remedy=f"put {_DIGITS}, there with mode 600, or name another place in `{_OPTION}`",
            ) from None
        found = self.read()
        if found is None:
            raise LedgerError(f"{self.name} is a link to a file that is not there: put that back, or remove the link")
        return found


def fresh_key(noise: Noise) -> bytes:
    """Draw a key of 32 bytes for one process, which forgets it."""
    return noise.entropy.words(4).tobytes()


def known_key(place: UserKeyPlace, ledger: _Kept) -> bytes | None:
    """Return the key of a stream (32 bytes), which its user key and its name determine; None if there is none yet.

    Raises
    ------
    ConfigError, LedgerError
        A key that may not be used.
    LedgerMismatch
        Another key than that of earlier runs, or its file is missing.
    """
    kept, secret = ledger.setting(SETTING), place.read()
    if secret is None:
        if kept is None:
            return None
        raise LedgerMismatch(
            f"{place.name} is missing: users are known by it, and another key would choose anew for each of them",
            remedy=f"put it back, or end stream {ledger.terms.root!r} and start one under a new name and budget",
        )
    key = derived(secret, ledger.terms.root)
    _compare(kept or check_value(key), key, place, ledger)
    return key


def stream_key(place: UserKeyPlace, ledger: Ledger) -> bytes:
    """Return the `known_key` of a stream; the first opening makes its file, and keeps its check value in the ledger.

    Source
    ------
    Specification 8.7.
    """
    key = known_key(place, ledger) or derived(place.make(), ledger.terms.root)
    _compare(ledger.keep_setting(SETTING, check_value(key)), key, place, ledger)
    return key


def _compare(kept: str, key: bytes, place: UserKeyPlace, ledger: _Kept) -> None:
    if kept != check_value(key):
        raise LedgerMismatch(
            f"`{_OPTION}` is not the key of stream {ledger.terms.root!r}: {place.text} holds another",
            remedy="put the first one back, which all processes of the stream share",
        )


def derived(secret: bytes, stream: str) -> bytes:
    """Return the key of one stream, so that two streams know a user by different hashes."""
    return hashlib.blake2b(stream.encode("utf-8", "surrogatepass"), key=secret, digest_size=32).digest()


def check_value(key: bytes) -> str:
    """Return 16 hex digits, by which a key is known again and nothing else is."""
    return hashlib.blake2b(b"fcstream user key", key=key, digest_size=8).hexdigest()

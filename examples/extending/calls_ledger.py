"""A ledger of one's own: the rules of `MemoryLedger`, and a file of all calls, which are repeated when it is opened."""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import astuple, is_dataclass, replace

from fcstream import LedgerError, LedgerMismatch, PrivacyLoss
from fcstream.ledgers import Request, SealedRelease, WindowKey
from fcstream.ledgers.memory import MemoryLedger


def _plain(value):
    return astuple(value) if is_dataclass(value) else bytes(value).hex()


def _request(window, loss, blocks):
    return Request(WindowKey(*window), PrivacyLoss(*loss), tuple(blocks))


def _answer(window, body, refund):
    return SealedRelease(WindowKey(*window), bytes.fromhex(body), PrivacyLoss(*refund))


READ = {"charge": _request, "seal": _answer, "acknowledge": WindowKey}


class CallsLedger(MemoryLedger):
    """A call is on disk before its effect is seen: a charge that is forgotten would be noise that nobody paid for."""

    epoch_states = None  # no running totals: what they need of earlier windows would have to be on disk, too

    def __init__(self, path, terms):
        super().__init__(terms)
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one process at a time
        self._file.seek(0)
        lines = [line for line in self._file if line.endswith(b"\n")]
        self._file.truncate(sum(map(len, lines)))  # a crash cut the rest short, so nothing followed from it
        for call, *rows in map(json.loads, lines):
            with suppress(LedgerError):  # what was refused then is refused again
                getattr(super(), call)(*([[READ[call](*row) for row in rows]] if call in READ else rows))
        bound = repr(replace(terms, shared_keys=None))
        if self.keep_setting("terms", bound) != bound:
            self.close()
            raise LedgerMismatch(f"{path} belongs to another stream, unit, budget or specification")

    def _note(self, *call):
        line = json.dumps(call, default=_plain).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self._file.close()  # what is on disk is not known now: no call is taken until it is opened again
            raise LedgerError("the ledger cannot be written") from error

    def charge(self, requests):
        self._note("charge", *requests)
        return super().charge(requests)

    def seal(self, answers):
        self._note("seal", *answers)
        super().seal(answers)

    def acknowledge(self, windows):
        self._note("acknowledge", *windows)
        super().acknowledge(windows)

    def keep_setting(self, key, value):
        self._note("keep_setting", key, value)
        return super().keep_setting(key, value)

    def close(self):
        self._file.close()

"""The journal of devices: crashes, copies put back, forgetting; and an adversary who asks."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import Crash, Fragile, ask, make, reply

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers.rollback_guard import RollbackGuard
from fcstream.local import FileJournal, LocalBudget, answer_all
from fcstream.local.device import device, journal
from fcstream.local.device.accounts import Accounts, fingerprint
from fcstream.local.device.journal import MemoryJournal

FILES = ("state", "state-witness", "state-new")


def test_a_restarted_device_remembers(tmp_path):
    path = str(tmp_path / "state")
    with make(path) as first:
        said = [first.answer(ask(str(i))) for i in range(3)]
        with pytest.raises(LedgerInUse):
            make(path)
    for name in FILES[:2]:
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    with make(path, seed=99) as second:
        assert second.spent == PrivacyLoss(3 * 10**8)
        assert [second.answer(ask(str(i))) for i in range(3)] == said
        assert second.spent == PrivacyLoss(3 * 10**8)
    with pytest.raises(LedgerMismatch):
        make(path, budget=LocalBudget.concentrated(2))
    with make(path) as third:  # who was refused let go of the file
        third.close()
        with pytest.raises(LedgerError, match="closed"):
            third.answer(ask("x"))


def test_a_journal_may_be_any_path(tmp_path):
    for path in (tmp_path / "one", str(tmp_path / "two")):
        with make(path):
            assert Path(path).exists()
        with make(path):  # and it was let go of
            pass
    with pytest.raises(LedgerError):
        make(tmp_path / "no" / "folder")
    with pytest.raises(ConfigError):
        FileJournal(tmp_path / "three", keep=0)


def test_torn_tails_are_dropped_and_damage_is_refused(tmp_path):
    path = tmp_path / "state"
    with make(path) as first:
        said = first.answer(ask("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'00000000 {"charge":[["que')
    with make(path) as second:
        assert second.answer(ask("a")) == said
    assert path.read_bytes() == whole
    for place in (3, 80, len(whole) - 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(LedgerDamaged):
            make(path)
    lines = whole.splitlines(keepends=True)
    for wrong in (lines[1:], [lines[1], lines[0]], lines[:1] * 2 + lines[1:]):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(LedgerDamaged):
            make(path)


def test_an_older_copy_is_refused(tmp_path):
    """Also one from before the file was made smaller, an empty one, none, and another device's."""
    path = tmp_path / "state"
    copies = []
    with make(path) as holder:
        for i in range(4):
            copies.append(path.read_bytes())
            holder.answer(ask(str(i), nano=10**7))
        copies.append(path.read_bytes())
        holder._journal.keep = 1
        holder.answer(ask("4", nano=10**7))
        copies.append(path.read_bytes())
        holder._journal.compact()
        holder.answer(ask("5", nano=10**7))
    newest = path.read_bytes()
    for copy in [*copies, newest[: newest.rfind(b"\n", 0, -1) + 1]]:
        path.write_bytes(copy)
        with pytest.raises(LedgerDamaged, match="charges are forgotten; restore the newest one"):
            make(path)
    path.unlink()
    with pytest.raises(LedgerDamaged, match="is missing"):
        make(path)
    with make(tmp_path / "other", value=(7.0,)) as other:
        for i in range(9):
            other.answer(ask(str(i), nano=10**7 + 1))
    path.write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(LedgerDamaged, match="another history"):
        make(path)
    path.write_bytes(newest)
    with make(path) as holder:
        assert holder.spent == PrivacyLoss(6 * 10**7)
    (tmp_path / "state-witness").unlink()  # an absent witness says nothing
    with make(path):
        pass


OPEN = {"open": {"capacity_nano": 9}}
CHARGE = {"charge": [["q", 1, "d", False, [["", 5]]]]}


@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ([OPEN], {"seal": [["q", 1, [["", "x"]]]]}),
        ([OPEN], {"again": [["q", 1, [""]]]}),
        ([], CHARGE),  # nobody has a budget yet
        ([OPEN], OPEN),
        ([OPEN], {"charge": [["q", 1, "d", False, [["", 10]]]]}),
        ([OPEN], {"charge": [["q", 1, "d", False, [["", 5, -1]]]]}),
        ([OPEN, CHARGE], {"charge": [["q", 1, "d", False, [["", 1]]]]}),
        ([OPEN, CHARGE], {"charge": [["q", 2, "d", False, [["", 5]]]]}),
        ([OPEN, CHARGE, {"again": [["q", 1, [""]]]}], {"again": [["q", 1, [""]]]}),
        ([OPEN, CHARGE, {"seal": [["q", 1, [["", "x"]]]]}], {"seal": [["q", 1, [["", "y"]]]]}),
        ([OPEN, CHARGE, {"seal": [["q", 1, [["", "x"]]]]}], {"again": [["q", 1, [""]]]}),
        ([OPEN], {"drop": ["q"]}),
        ([OPEN, {"expired": [f"{fingerprint('q'):x}"]}], CHARGE),
        ([OPEN, CHARGE, {"drop": ["q"]}], {"seal": [["q", 1, [["", "x"]]]]}),
    ],
)
def test_a_journal_that_contradicts_itself_is_damaged(sound, wrong):
    accounts = Accounts()
    for change in sound:
        accounts.follow({"at": 1} | change)
    with pytest.raises((ValueError, TypeError, KeyError)):
        accounts.follow({"at": 1} | wrong)


def test_a_full_disk_stops_the_device(tmp_path):
    held = FileJournal(tmp_path / "state")
    holder = make(held)
    held._file, real = -1, held._file
    with pytest.raises(LedgerError):
        holder.answer(ask())
    held._file = real
    with pytest.raises(LedgerError, match="open it again"):
        holder.answer(ask())
    held.close()
    held.close()


def test_old_queries_are_refused_and_never_answered_anew(tmp_path):
    path = tmp_path / "state"
    held = FileJournal(path, keep=3, sync=False)
    one, two = make(held, name="one"), make(held, name="two", seed=2)
    said = {}
    for i in range(6):
        for part in (1, 2):
            said[i, part] = one.answer(ask(f"q{i}", part, 10**7))
    spent = one.spent
    for turn in range(3):
        for i in range(6):
            found = one.answer(ask(f"q{i}", 1, 10**7))
            if i < 3:  # whoever asks, and for another price too: the query is too old
                assert reply(found) == {"query": f"q{i}", "reason": "expired", "round": 1, "status": "refused"}
                assert reply(two.answer(ask(f"q{i}", 7, 5)))["reason"] == "expired"
            else:
                assert found == said[i, 1]
        assert one.spent == spent
        assert two.spent == PrivacyLoss(0)
        held.compact() if turn == 0 else held.close()
        if turn:
            held = FileJournal(path, keep=9, sync=False)  # keeping more brings nothing back
            one, two = make(held, name="one"), make(held, name="two", seed=2)
    held.close()


@pytest.mark.slow
def test_years_of_questions_stay_small(tmp_path):
    """A thousand queries, ten kept: the file holds ten, and 19 bytes for each of the others."""
    path = tmp_path / "state"
    held = FileJournal(path, keep=10, sync=False)
    holder = make(held, budget=LocalBudget.concentrated(10**6))
    most = 0
    small, journal._SMALL = journal._SMALL, 2**13
    try:
        for i in range(1000):
            holder.answer(ask(f"some query of the day {i}", nano=10**6))
            most = max(most, path.stat().st_size)
    finally:
        journal._SMALL = small
    held.compact()
    assert path.stat().st_size < 1000 * 19 + 6000 < most < 2 * 1000 * 19 + 6000 + 2**13
    assert len(held.accounts.kept) == 10
    assert not (tmp_path / "state-new").exists()
    held.close()
    with make(FileJournal(path, keep=10), budget=LocalBudget.concentrated(10**6)) as again:
        assert again.spent == PrivacyLoss(1000 * 10**6)
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["replaced", "removed", "written by another"])
def test_a_device_whose_journal_is_taken_answers_no_more(tmp_path, how):
    """It answered from a file that was nobody's any more, and who opened the new one answered the same questions."""
    path, guard = tmp_path / "state", tmp_path / "state-witness"
    with make(path) as holder:
        holder.answer(ask("1"))
        if how == "written by another":
            other = RollbackGuard(str(guard))
            other.note(9, bytes(32))
            other.close()
        elif how == "replaced":
            (tmp_path / "copy").write_bytes(path.read_bytes())
            os.replace(tmp_path / "copy", path)
        else:
            path.unlink()
        for name in ("2", "3"):
            with pytest.raises(LedgerError):
                holder.answer(ask(name))


def test_a_file_that_was_put_in_place_is_held(tmp_path):
    """Whoever opened the old file while it was replaced must not write to it."""
    path = tmp_path / "state"
    with make(path) as holder:
        holder.answer(ask())
        early = os.open(path, os.O_RDWR)
        holder._journal.compact()
        with pytest.raises(LedgerInUse):
            make(path)
        with pytest.raises(LedgerInUse):
            journal._hold(early, path)  # the old file is free, but it is not the one that counts
        os.close(early)


def test_no_room_for_a_smaller_file_does_no_harm(tmp_path, monkeypatch):
    path = tmp_path / "state"
    with make(path) as holder:
        said = holder.answer(ask())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "no space")))
            holder._journal.compact()
        assert not (tmp_path / "state-new").exists()
        assert holder.answer(ask()) == said
        with monkeypatch.context() as patch:
            patch.setattr(journal, "sync_folder", lambda path: (_ for _ in ()).throw(OSError(5, "input/output")))
            with pytest.raises(LedgerError):
                holder._journal.compact()
        with pytest.raises(LedgerError):
            holder.answer(ask())
    with make(path) as holder:
        assert holder.answer(ask()) == said


MOVES = st.one_of(
    st.tuples(
        st.just("ask"),
        st.integers(0, 6),  # query
        st.integers(1, 7),  # tenths of the budget
        st.none() | st.integers(0, 5),  # where it dies
        st.lists(st.integers(0, 1), min_size=1, max_size=3),  # who is asked, also twice
    ),
    st.tuples(st.sampled_from(["restart", "compact", "copy", "put back", "fewer"])),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(moves=st.lists(MOVES, max_size=30))
def test_no_adversary_makes_a_device_spend_more_than_its_budget(moves, tmp_path_factory):
    """Ids asked again, at other prices, in any order, crashes at every write, smaller files, older copies put back: all
    that ever left was paid for once, and an id has one answer for ever."""
    path, keep = tmp_path_factory.mktemp("devices") / "state", 4
    left, prices, copies = {}, [{}, {}], []

    def start(seed):
        held = Fragile(path, keep=keep, sync=False)
        return held, [make(held, seed=2 * seed + k, name=f"d{k}") for k in range(2)]

    held, devices = start(0)
    for number, (kind, *move) in enumerate(moves, 1):
        if kind == "ask":
            query, tenth, held.die_in, who = move
            one = ask(str(query), nano=tenth * 10**8)
            try:
                for k, data in zip(who, answer_all([(devices[k], one) for k in who]), strict=True):
                    found = reply(data)
                    if found["status"] == "answered":
                        assert left.setdefault((k, query), data) == data  # the same bytes, for ever
                        prices[k][query] = one.nano
            except Crash:
                with pytest.raises(LedgerError):
                    devices[0].answer(one)  # what is on disk is not known
                held.close()
                held, devices = start(number)
            held.die_in = None
        elif kind == "compact":
            held.compact()
        elif kind == "copy":
            copies.append(path.read_bytes())
        else:
            held.close()
            if kind == "fewer":
                keep = max(1, keep - 1)
            newest = path.read_bytes()
            for copy in copies if kind == "put back" else []:
                if copy != newest:
                    path.write_bytes(copy)
                    with pytest.raises(LedgerDamaged):
                        start(number)
            path.write_bytes(newest)
            held, devices = start(number)
        for k, one in enumerate(devices):
            assert sum(prices[k].values()) <= one.spent.rho_nano <= 10**9
            assert one.spent.rho_nano == held.accounts.tally(one.name).spent
    held.close()


def test_a_charge_without_an_answer_is_drawn_once_more_and_then_refused(tmp_path):
    for attempt in range(2):
        held = Fragile(tmp_path / "state")
        holder = make(held)
        held.die_in = 3  # the charge is written, the answer is not
        with pytest.raises(Crash):
            holder.answer(ask())
        held.close()
        with make(tmp_path / "state") as after:
            assert after.spent.rho_nano == 10**8, attempt
    with make(tmp_path / "state") as holder:
        assert reply(holder.answer(ask()))["reason"] == "interrupted"
        holder._journal.compact()
    with make(tmp_path / "state") as holder:
        assert reply(holder.answer(ask()))["reason"] == "interrupted"
        assert holder.spent.rho_nano == 10**8


def test_nothing_is_drawn_before_the_charge_is_durable(monkeypatch):
    order = []
    held = MemoryJournal()
    write, draw = held._write, device.draw
    monkeypatch.setattr(held, "_write", lambda change: order.append(sorted(change)) or write(change))
    monkeypatch.setattr(device, "draw", lambda todo: order.append("noise") or draw(todo))
    make(held).answer(ask())
    assert order == [["at", "charge", "metrics", "open"], "noise", ["at", "seal"]]


class Fuse:
    """Kills this process at the n-th call that touches a file; with None only counts."""

    CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "replace", "remove")

    def __init__(self, burn_at):
        self.burn_at, self.calls = burn_at, 0

    def patch(self):
        for name in self.CALLS:
            real = getattr(os, name)

            def call(*args, _real=real, **options):
                self.calls += 1
                if self.calls == self.burn_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return _real(*args, **options)

            setattr(os, name, call)


def work(folder, out):
    """Eight queries to two devices, two kept, and smaller files in between; what leaves goes to `out`."""
    tell = os.write  # what has left is not the journal's business
    yield
    journal._SMALL = 300
    held = FileJournal(folder / "state", keep=2)
    devices = [make(held, seed=5 + k, name=f"d{k}", budget=LocalBudget.concentrated(2)) for k in range(2)]
    for i in range(8):
        for round in (1, 2):
            for data in answer_all([(one, ask(f"q{i}", round, 10**8)) for one in devices]):
                tell(out, data + b"\n")
    held.close()


def in_child(folder, burn_at):
    """Run `work` in a process that is killed at a call; returns how many calls it made if it was not."""
    out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sink, source = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 3
        with contextlib.suppress(BaseException):
            fuse, steps = Fuse(burn_at), work(folder, out)
            next(steps)
            report = os.write
            fuse.patch()
            next(steps, None)
            report(source, str(fuse.calls).encode())
            code = 0
        os._exit(code)
    os.close(source)
    os.close(out)
    data = os.read(sink, 100)
    os.close(sink)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return int(data) if data else None


@pytest.mark.slow
def test_killed_at_every_call_that_touches_a_file(tmp_path):
    make().answer(ask())  # kernels are loaded: forked processes start with them
    (tmp_path / "whole").mkdir()
    calls = in_child(tmp_path / "whole", None)
    assert calls > 120
    small = journal._SMALL
    for burn_at in range(1, calls + 1):
        folder = tmp_path / str(burn_at)
        folder.mkdir()
        assert in_child(folder, burn_at) is None
        left = {}
        for line in (folder / "out").read_bytes().splitlines():
            found = reply(line)
            left.setdefault((found["query"], found["round"]), []).append(line)
        for turn in range(2):  # the second time the file was made smaller first
            held = FileJournal(folder / "state", keep=2, sync=False)
            devices = [make(held, seed=50 + k, name=f"d{k}", budget=LocalBudget.concentrated(2)) for k in range(2)]
            assert all(len(lines) * 10**8 <= 2 * 10**9 for lines in left.values())
            for (query, round), lines in left.items():
                for one, line in zip(devices, lines, strict=False):
                    said = one.answer(ask(query, round, 10**8))
                    assert said == line or reply(said)["reason"] == "expired"
            for one in devices:
                assert len(left) * 10**8 <= one.spent.rho_nano <= (len(left) + 1) * 10**8 <= 17 * 10**8
            if turn == 0:
                held.compact()
            held.close()
        for name in FILES:
            if (folder / name).exists():
                assert (folder / name).stat().st_mode & 0o777 == 0o600
        if burn_at % 6 == 0:
            in_child(folder, None)  # the work is done again to its end: what was said is said again
            again = [line for line in (folder / "out").read_bytes().splitlines() if b"values" in line]
            assert len(set(again)) <= 32
    journal._SMALL = small

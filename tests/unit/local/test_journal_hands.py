"""One journal and several hands: threads, processes, batches, owners, and calls that fail."""

import os
import threading

import pytest
from support.journals import Crash, Fragile, ask, make, reply

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerError, LedgerInUse, LedgerMismatch
from fcstream.local import Ask, Component, Euclidean, FileJournal, LocalBudget, LocalFilter, Named, Point, answer_all
from fcstream.local.device import journal
from fcstream.local.device.journal import MemoryJournal
from fcstream.local.protocol import REASONS


def test_devices_of_one_batch_are_charged_in_their_own_journals(tmp_path):
    """Found by reading: all charges of a batch were written to the first device's journal."""
    held = [make(tmp_path / name, name=name) for name in "abc"]
    said = answer_all([(one, ask(nano=10**9)) for one in held])
    for one in held:
        one.close()
    for name, line in zip("abc", said, strict=True):
        with make(tmp_path / name, name=name, seed=9) as again:
            assert again.spent == PrivacyLoss(10**9)
            assert again.answer(ask(nano=10**9)) == line


def test_a_name_has_one_device_and_a_journal_one_budget(tmp_path):
    held = FileJournal(tmp_path / "state")
    one = make(held, name="x")
    with pytest.raises(LedgerInUse):
        make(held, name="x")
    with pytest.raises(LedgerMismatch):
        make(held, name="y", budget=LocalBudget.geo(1))
    one.answer(ask(nano=7 * 10**8))
    one.close()
    one.close()
    other = make(held, name="x")
    assert reply(other.answer(ask("r", nano=7 * 10**8)))["reason"] == "budget"
    with pytest.raises(LedgerError):
        one.answer(ask("s"))
    held.close()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_forked_process_does_not_answer(kind, tmp_path):
    """Both would have the whole budget."""
    holder = make(tmp_path / "state" if kind == "file" else None)
    sink, source = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            holder.answer(ask())
            os.write(source, b"answered")
        except LedgerError:
            os.write(source, b"refused")
        finally:
            os._exit(0)
    os.close(source)
    os.waitpid(pid, 0)
    assert os.read(sink, 20) == b"refused"
    os.close(sink)
    assert reply(holder.answer(ask()))["status"] == "answered"
    holder.close()


def test_what_fails_before_the_charge_costs_nobody_anything(tmp_path):
    """One device's owner raises in the middle of a batch: found by reading, others kept a charge in memory only."""
    held = FileJournal(tmp_path / "state")

    def absent(name):
        raise OSError("values are away")

    good = make(held, name="good")
    away = LocalFilter(LocalBudget.concentrated(1), absent, held, name="away")
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            answer_all([(good, ask()), (away, ask())])
        assert good.spent == PrivacyLoss(0)
    said = good.answer(ask())
    held.close()
    with make(tmp_path / "state", name="good", seed=4) as again:
        assert again.spent == PrivacyLoss(10**8)
        assert again.answer(ask()) == said


def test_what_distance_1_means_stays(tmp_path):
    """An owner who changes the unit would break what was promised per unit; the box and the step may change."""
    path = tmp_path / "state"

    def moved(**changes):
        space = Euclidean((-500.0,), (600.0,), **({"step": 1.0, "unit": 1.0} | changes))
        one = Ask("r", 1, "place@noon", space.as_dict(), Point().as_dict(), 10**8)
        return LocalFilter(LocalBudget.concentrated(1), lambda name: Component(space, (3.0,)), path), one

    with make(path) as holder:
        holder.answer(ask())
        holder._journal.compact()
    for _ in range(2):
        holder, one = moved(unit=10.0)
        with holder, pytest.raises(LedgerMismatch, match="restore it"):
            holder.answer(one)
        assert holder.spent == PrivacyLoss(10**8)
    holder, one = moved(step=0.5)
    with holder:
        assert reply(holder.answer(one))["status"] == "answered"
    held = MemoryJournal()
    spaces = [Euclidean((0.0,), (9.0,), 1.0, unit) for unit in (1.0, 2.0)]
    pair = [
        LocalFilter(LocalBudget.concentrated(1), {"x": Component(s, (1.0,))}, held, name=str(s.unit)) for s in spaces
    ]
    asks = [Ask("q", 1, "x", space.as_dict(), Point().as_dict(), 10**8) for space in spaces]
    with pytest.raises(LedgerMismatch):
        answer_all(list(zip(pair, asks, strict=True)))
    assert all(one.spent == PrivacyLoss(0) for one in pair)


def test_prices_are_whole_numbers():
    holder = make()
    for odd in (10**8 + 0.5, 1e8, True, float("nan"), "5"):
        assert reply(holder.answer(ask(nano=odd)))["reason"] == "loss"
    assert holder.spent == PrivacyLoss(0)


def test_an_owners_function_must_give_whole_numbers():
    """Noise is whole, so a fraction would be published as it is."""
    holder = make(named={"half": Named("half", 1, lambda point: 2.5)})
    with pytest.raises(TypeError):
        holder.answer(ask(function=Named("half", 1)))


def test_what_fails_after_the_charge_is_drawn_once_more():
    calls = []

    def shaky(point):
        calls.append(point)
        if len(calls) == 1:
            raise RuntimeError
        return 3

    own = Named("own", 1, shaky)
    holder = make(named={"own": own})
    with pytest.raises(RuntimeError):
        holder.answer(ask(function=own))
    said = holder.answer(ask(function=own))
    assert reply(said)["status"] == "answered"
    assert holder.spent == PrivacyLoss(10**8)
    assert holder.answer(ask(function=own)) == said


def test_an_interrupt_in_the_middle_of_a_write_stops_the_device(tmp_path, monkeypatch):
    """Memory and disk may disagree then: only opening it again tells."""
    for owner, name, spent in (("accounts", "follow", 0), ("_rollback_guard", "note", 10**8)):
        held = FileJournal(tmp_path / name)
        holder = make(held)

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(getattr(held, owner), name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                holder.answer(ask())
        with pytest.raises(LedgerError):
            holder.answer(ask())
        held.close()
        with make(tmp_path / name) as again:
            assert again.spent == PrivacyLoss(spent)
            assert reply(again.answer(ask()))["status"] == "answered"
            assert again.spent == PrivacyLoss(10**8)


def test_a_second_draw_keeps_its_query(tmp_path):
    """Fewer queries are to be kept than there are, and the oldest is the one that a crash interrupted."""
    held = Fragile(tmp_path / "state")
    holder, held.die_in = make(held), 3
    with pytest.raises(Crash):
        holder.answer(ask("q0"))
    held.close()
    with make(tmp_path / "state") as holder:
        for i in (1, 2, 3):
            holder.answer(ask(f"q{i}"))
    for _ in range(2):
        with make(FileJournal(tmp_path / "state", keep=1)) as holder:
            assert reply(holder.answer(ask("q0")))["status"] == "answered"
            assert reply(holder.answer(ask("q1")))["reason"] == "expired"
            holder._journal.close()


def test_many_threads_and_one_journal(tmp_path):
    """Each id has one answer, each device pays once, whoever asks at the same time; files are sound."""
    held = FileJournal(tmp_path / "state", keep=40, sync=False)
    devices = [make(held, name=f"d{k}", seed=k) for k in range(6)]
    said = [{} for _ in range(8)]

    def run(thread):
        order = list(range(12))
        for i in order[thread:] + order[:thread]:
            batch = [(one, ask(f"q{i}", nano=10**8 if (i + thread) % 5 else 10**7)) for one in devices[thread % 3 :]]
            for (one, _), data in zip(batch, answer_all(batch), strict=True):
                if reply(data)["status"] == "answered":
                    said[thread][one.name, i] = data

    small, journal._SMALL = journal._SMALL, 2000
    try:
        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        journal._SMALL = small
    held.close()
    held = FileJournal(tmp_path / "state", keep=40)
    for one in [make(held, name=f"d{k}", seed=77) for k in range(6)]:
        found = {}
        for answers in said:
            for (name, i), data in answers.items():
                if name == one.name:
                    assert found.setdefault(i, data) == data
        assert sum(reply(data)["nano"] for data in found.values()) == one.spent.rho_nano <= 10**9
    held.close()


def test_reasons_are_a_closed_set():
    assert len(set(REASONS)) == len(REASONS) == 9

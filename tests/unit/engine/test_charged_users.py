"""No release about users is drawn before the public block was charged for its window, whatever is asked."""

import random
from functools import partial

import pytest
from support.drawn_streams import draw_records, draw_stream, open_silent, push, run

from fcstream.ledgers.base import USER_BLOCK
from fcstream.releases.answers import Answers


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_draw_about_users_was_charged_to_the_public_block(seed, monkeypatch):
    draw = random.Random(seed)
    while True:
        mapping, job = draw_stream(draw)
        if job.terms.unit == "user":
            break
    engine, drawn = open_silent(mapping, job), []
    ledgers = {part.job.terms.stream: part.ledger for part in engine.parts}
    release = Answers.release

    def checked(self, view, charge, noise):
        drawn.append([USER_BLOCK in ledger.charged_blocks(charge.window) for ledger in ledgers.values()])
        return release(self, view, charge, noise)

    monkeypatch.setattr(Answers, "release", checked)
    releases = run(engine, job, draw_records(draw, 200), draw, in_order=True, push_some=partial(push, mapping, job))
    assert any(each.status == "released" for each in releases)
    assert drawn
    assert all(any(each) for each in drawn)

from fcstream.runtime.words import many, were


def test_one_thing_has_no_plural():
    assert [f"{many(n, 'window')} {were(n)}" for n in (0, 1, 2)] == ["0 windows were", "1 window was", "2 windows were"]

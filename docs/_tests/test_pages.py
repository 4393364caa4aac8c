"""Every code block of README.md and of the pages is run; `pytest docs -k howto/NAME` runs one page."""

import os

import pytest
from support import REPOSITORY, pages


@pytest.mark.parametrize("path", pages.paths(), ids=lambda path: str(path.relative_to(REPOSITORY).with_suffix("")))
def test_page(path, tmp_path):
    page = pages.read(path)
    if missing := page.lacks():
        if os.environ.get("FCSTREAM_REQUIRE_SERVICES") == "1":
            pytest.fail(f"{path}: {missing}")
        pytest.skip(missing)
    pages.run(page, tmp_path)

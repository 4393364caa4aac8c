"""Tests that mostly wait run beside each other: those marked `beside` begin together, with the first of their file.

Such a test takes its parameters and perhaps a folder of its own (`folder`), no other fixture: it is called in a thread,
some at a time. When its own turn comes, pytest learns how it ended.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

AT_ONCE = 4
LONGEST_S = 900  # what each of them waits for has limits of its own
_BEGUN = pytest.StashKey()


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def _is_beside(item):
    return item.get_closest_marker("beside") is not None


def _begin(module, items):
    from fcstream.planning.warmup import warm_up

    if any("folder" in item.fixturenames for item in items):  # it starts the command there
        warm_up("count")  # else all of them would compile it at once
    pool = ThreadPoolExecutor(AT_ONCE)
    module.addfinalizer(lambda: pool.shutdown(cancel_futures=True))
    make_folder, begun = module.session.config._tmp_path_factory.mktemp, {}
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        folder = {"folder": make_folder("beside")} if "folder" in item.fixturenames else {}
        begun[item.nodeid] = pool.submit(item.obj, **given, **folder)
    return begun


def pytest_collection_modifyitems(items):
    for item in items:
        if _is_beside(item):
            item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item):
    module = item.getparent(pytest.Module)
    if _BEGUN not in module.stash:
        mine = [each for each in item.session.items if each.getparent(pytest.Module) is module and _is_beside(each)]
        module.stash[_BEGUN] = _begin(module, mine) if mine else {}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not _is_beside(pyfuncitem):
        return None
    pyfuncitem.getparent(pytest.Module).stash[_BEGUN][pyfuncitem.nodeid].result()
    return True

"""Every compiled function, one self-contained file per family: arrays in, arrays out.

Here belongs whatever carries a Numba decorator. A kernel draws no randomness, reads no file, and calls nothing in
another file, because a cached kernel does not notice that another file has changed. What calls a kernel, and checks
its arguments, belongs to the package that needs it.

Compiled code is kept where Numba keeps it: beside these files, in the user's cache folder, or in NUMBA_CACHE_DIR.
Where none of them can be written, it goes to a private folder that is deleted when the process ends, and a warning says
so. A folder that others can write to is refused, because this process would run whatever code they put there.
"""

import atexit
import shutil
import tempfile
import warnings

from numba import config, njit
from numba.core import event

from ..runtime.compile_cache import check_cache, compilation_begins

check_cache(config.CACHE_DIR)


class _Compilation(event.Listener):
    """Reports the compilation of functions that the cache does not hold."""

    def on_start(self, event: event.Event) -> None:
        compilation_begins()

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Compilation())


def _identity(x):  # type: ignore[no-untyped-def]
    return x


try:
    njit(cache=True)(_identity)
except RuntimeError:
    _folder = tempfile.mkdtemp(prefix="fcstream-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    config.CACHE_DIR = _folder
    warnings.warn(
        "compiled code cannot be kept, so every start takes some seconds longer: set NUMBA_CACHE_DIR to a folder that "
        "this user can write",
        RuntimeWarning,
        stacklevel=2,
    )

"""Every compiled function, one file per family: arrays in, arrays out.

Here belongs whatever carries a Numba decorator. A kernel draws no randomness, reads no file, and calls nothing outside
this folder: code that was compiled from a file is kept until that file, or another one of this folder that it imports,
changes. What calls a kernel, and checks its arguments, belongs to the package that needs it.

Compiled code is kept where Numba keeps it: beside these files, in the user's cache folder, or in NUMBA_CACHE_DIR. Where
none of them can be written, it goes to a private folder that is deleted when the process ends, and a warning says so. A
folder that others can write to is refused, because this process would run whatever code they put there.
"""

import atexit
import functools
import hashlib
import importlib.util
import re
import shutil
import tempfile
import warnings

from numba import config, njit
from numba.core import caching, event

from ..runtime.compile_cache import check_cache, compilation_begins

check_cache(config.CACHE_DIR)


class _Compilation(event.Listener):
    """Reports the compilation of functions that the cache does not hold."""

    def on_start(self, event: event.Event) -> None:
        compilation_begins()

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Compilation())


@functools.cache
def _digest(module: str) -> bytes:
    """Hash the source of a file of this folder, and of those that it imports from."""
    spec = importlib.util.find_spec(module)
    source = spec.loader.get_source(module)  # type: ignore[union-attr]
    others = re.findall(r"^from \.(\w+) import", source, re.MULTILINE)
    return hashlib.sha256(source.encode() + b"".join(_digest(f"{__name__}.{other}") for other in others)).digest()


class _KernelCache(caching.FunctionCache):
    """Numba's cache, but for its stamp: Numba's is of the kernel's own file only."""

    def __init__(self, function):  # type: ignore[no-untyped-def]
        super().__init__(function)
        stamp = _digest(function.__module__)
        # Also in the files' names: two versions that compile at once in one folder never read each other's code.
        name = f"{self._impl.filename_base}-{stamp.hex()[:16]}"
        self._cache_file = caching.IndexDataCacheFile(self.cache_path, name, stamp)


def kernel(function=None, **options):  # type: ignore[no-untyped-def]
    """Compile a function when it is first called, without the interpreter's lock, and keep the code.

    As `numba.njit` with `cache`, but kept code is used only while no file has changed that it was made from: the
    function's own, and those of this folder that it imports names from.

    A function whose name begins with an underscore is for other kernels alone, and crashes the process if Python calls
    it: the code between Python and a kernel takes as long to compile as many a kernel.
    """
    if function is None:
        return functools.partial(kernel, **options)
    is_inner = function.__name__.startswith("_")
    usual = {"nogil": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": is_inner}
    compiled = njit(**usual | options)(function)
    compiled._cache = _KernelCache(function)
    return compiled


try:
    _KernelCache(_digest.__wrapped__)
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

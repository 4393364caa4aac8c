"""Public names of a package that are imported when they are first used, so that importing the package is cheap."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r"^from \.(\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return a package's `__getattr__`, and its public names, in order.

    Parameters
    ----------
    package, file : str
        `__name__` and `__file__` of the package. The stub beside it, `__init__.pyi`, lists the public names, each in
        a line ``from .module import name as name``, which type checkers read too.
    """
    loader: Any = sys.modules[package].__loader__  # the package may lie in an archive
    stub = loader.get_data(str(Path(file).with_suffix(".pyi"))).decode()
    modules = {name: module for module, name in _IMPORT.findall(stub)}

    def resolve(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return resolve, sorted(modules)

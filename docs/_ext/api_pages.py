"""Writes docs/reference/api/index.rst: every public name of every public package, by the part of fcstream it is in."""

import importlib
import inspect
from pathlib import Path
from typing import Any

PACKAGES = ("fcstream", "fcstream.local", "fcstream.predicates", "fcstream.synthetic", "fcstream.testing")


def write(app: Any, _config: Any) -> None:
    """Before pages are looked for."""
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(exist_ok=True)
    (folder / "index.rst").write_text("\n".join(["API", "===", "", _ABOUT, "", *(_section(name) for name in PACKAGES)]))


_ABOUT = """Public are the names below; everything else may change with any version. Names of ``fcstream`` and
``fcstream.local`` are imported when they are first used."""


def public_names(package: str) -> list[str]:
    """The names of a package: those that it lists, or the classes and functions that it defines."""
    module = importlib.import_module(package)
    if listed := getattr(module, "__all__", None):
        return sorted(name for name in listed if not name.startswith("__"))
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == package]
    return sorted(name for name in own if not name.startswith("_"))


def _section(package: str) -> str:
    """One heading a package, one table for each part that its names are defined in."""
    module = importlib.import_module(package)
    parts: dict[str, list[str]] = {}
    again = set(public_names("fcstream")) & set(public_names(package)) if package != "fcstream" else set()
    own = [name for name in public_names(package) if name not in again]
    for name in own:
        where = getattr(getattr(module, name), "__module__", package).removeprefix(f"{package}.").partition(".")[0]
        parts.setdefault(where, []).append(name)
    if package != "fcstream":  # small enough for one table
        parts = {"": own}
    lines = [f"``{package}``", "-" * (len(package) + 4), "", inspect.getdoc(module).split("\n\n")[0], ""]
    if again:
        known = ", ".join(f"``{package}.{name}``" for name in sorted(again))
        lines += [f"Also here under the same names as in ``fcstream``: {known}.", ""]
    for part, names in sorted(parts.items()):
        if part:
            about = inspect.getdoc(importlib.import_module(f"{package}.{part}")).split("\n\n")[0].replace("\n", " ")
            lines += [f"{part}", "^" * len(part), "", about, ""]
        lines += [".. autosummary::", "   :toctree:", "", *(f"   {package}.{name}" for name in names), ""]
    return "\n".join(lines)

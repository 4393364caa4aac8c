"""The keys of configurations, as Markdown: sections, kinds of releases, and the files of `fcstream local`."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec
from sphinx.pycode import ModuleAnalyzer

import fcstream.config.sections
import fcstream.sections
from fcstream.local import settings
from fcstream.releases import registry
from fcstream.releases.options import Options, keys_of

_seen: set[str] = set()
_PYTHON = {value: name for name, value in vars(fcstream.sections).items() if name[0].isupper()}
"""What sections and options are called in Python."""


def configuration() -> str:
    """Every section of a stream's configuration but `[release]`, whose keys depend on the kind."""
    _seen.clear()
    fields = {one.encode_name: one for one in msgspec.structs.fields(fcstream.config.sections.Sections)}
    return "".join(_sections({name: fields[name].type for name in fields if name != "release"}))


def kinds() -> str:
    """The keys of `[release]`: those of all kinds, then those of each kind."""
    parts = [entries(Options, "release", keys_of(Options))]
    for kind, classes in _classes().items():
        parts.append(f"\n## {kind}\n\n")
        shown: list[str] = []
        for options, methods in classes.items():
            own = [key for key in keys_of(options) if key not in keys_of(Options) and key not in options.without_effect]
            if named := [name for name in methods if name]:
                parts.append(f"### Method {_listed([f'`{name}`' for name in named])}\n\n")
            parts.append(_about(options))
            is_new = not any(issubclass(options, other) for other in classes if other is not options)
            fresh = [key for key in own if key not in shown or is_new]
            parts.append(entries(options, "release", fresh) if fresh else "")
            if fresh != own:
                parts.append("The keys are those above.\n\n")
            shown += own
        if ignored := next(iter(classes)).without_effect:
            parts.append(
                f"Accepted without effect, as the first version did: {_listed([f'`{name}`' for name in ignored])}.\n\n"
            )
    return "".join(parts)


def devices() -> str:
    """The sections of a file of `fcstream local`."""
    parts = ["## `[components.NAME]`\n\nWhat each device holds; every component lives in a space.\n\n"]
    parts += _by_kind(
        "components.NAME", {kind: section for kind, (section, _) in settings.SPACES.items()}, required=True
    )
    parts.append("## `[budget]`\n\nOf each device, for ever.\n\n")
    parts += _by_kind("budget", {kind: section for kind, (section, _) in settings.BUDGETS.items()}, "concentrated")
    parts.append("## `[query]`\n\n" + entries(settings.QuerySection, "query", keys_of(settings.QuerySection)))
    parts += _by_kind("query", settings.QUERIES, without=settings.QuerySection, required=True)
    fields = {one.encode_name: one.type for one in msgspec.structs.fields(settings.DeviceSections)}
    rest = {name: kind for name, kind in fields.items() if kind is not Any and name != "components"}
    return "".join(parts) + "".join(_sections(rest))


def _sections(fields: dict[str, Any]) -> Iterator[str]:
    for name, kind in fields.items():
        (section,) = fcstream.config.conversion.sections_of(kind)
        is_list = get_origin(kind) is list
        yield f"## `{'[[' if is_list else '['}{name}{']]' if is_list else ']'}`\n\n"
        if section is not fcstream.config.sections.UrlSection:
            about = inspect.getdoc(section).split("\n\n")[0].partition(": ")[2]
            yield f"{about[:1].upper()}{about[1:]}\n\n"
        yield _in_python(section)
        yield entries(section, name, keys_of(section))
        for key, kind in keys_of(section).items():
            for inner in fcstream.config.conversion.sections_of(kind):
                about = inspect.getdoc(inner).partition(": ")[2]
                yield f"## `[{name}.{key}]`\n\n{about[:1].upper()}{about[1:]}\n\n{_in_python(inner)}"
                yield entries(inner, f"{name}.{key}", keys_of(inner))


def _by_kind(
    name: str, sections: Any, default: str | None = None, without: Any = None, required: bool = False
) -> Iterator[str]:
    words = _listed([f"`{kind}`" for kind in sections], "or")
    yield _entry(f"{name}.kind", words, "required" if required else f"`{default}`", "What follows depends on it.")
    for kind, section in sections.items():
        about = inspect.getdoc(section).partition(": ")[2]
        yield f"### {name.partition('.')[0]}, kind {kind}\n\n{about[:1].upper()}{about[1:]}\n\n"
        skipped = () if without is None else keys_of(without)
        yield entries(section, name, [key for key in keys_of(section) if key not in skipped])


def _classes() -> dict[str, dict[type[Options], list[str]]]:
    """Options by kind, with the methods that they serve."""
    found: dict[str, dict[type[Options], list[str]]] = {}
    for name in registry.KINDS:
        kind, _, method = name.partition("/")
        found.setdefault(kind, {}).setdefault(registry.find(kind, method or None), []).append(method)
    return found


def _about(options: type[Options]) -> str:
    """What a kind releases and costs, as its docstring says."""
    text = inspect.getdoc(options)
    sections = re.split(r"^(\w+)\n-+\n", text, flags=re.MULTILINE)
    parts = dict(zip(sections[1::2], sections[2::2], strict=True))
    cost = " ".join(parts["Cost"].split())
    fields = re.findall(r"^(\S.*)\n((?:    .*\n?)+)", parts["Released"], re.MULTILINE)
    rows = [
        f"| {_listed([f'`{one}`' for one in names.split(', ')])} | {' '.join(said.split())} |" for names, said in fields
    ]
    where = "Features may be categories. " if options.takes_categories else ""
    where += "" if options.needs_features else "It needs no features. "
    table = "| released | |\n| --- | --- |\n" + "\n".join(rows)
    return f"{table}\n\nCost: {cost} {where}\n\n{_in_python(options)}"


def _in_python(section: type[msgspec.Struct]) -> str:
    """The class that `fcstream.Stream` takes, which may be a subclass that serves more methods."""
    names = [name for cls, name in _PYTHON.items() if cls is section] or [
        name for cls, name in _PYTHON.items() if isinstance(cls, type) and issubclass(cls, section)
    ]
    return f"In Python: `fcstream.sections.{names[0]}`.\n\n" if names else ""


def entries(section: type[msgspec.Struct], name: str, keys: Any) -> str:
    """One entry for each of these keys of a section."""
    fields = {one.encode_name: one for one in msgspec.structs.fields(section)}
    meanings = _meanings(section)
    kinds = {key: _choices(section, key) or shown_type(fields[key].type) for key in keys}
    return "".join(_entry(f"{name}.{key}", kinds[key], _default(fields[key]), meanings[key]) for key in keys)


def _choices(section: type[msgspec.Struct], key: str) -> str:
    """Kinds and methods of releases, which are no types but names in the registry."""
    pairs = [name.partition("/") for name in registry.KINDS]
    if section is Options and key == "kind":
        return _listed(list(dict.fromkeys(f'`"{kind}"`' for kind, _, _ in pairs)), "or")
    if issubclass(section, Options) and key == "method":
        kinds = {kind for kind, of in _classes().items() if section in of}
        return _listed([f'`"{method}"`' for kind, _, method in pairs if kind in kinds], "or")
    return ""


def _meanings(section: type) -> dict[str, str]:
    """What the docstrings under the keys say, also those of the classes that a section inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__[:-2]):
        if cls.__module__.startswith("fcstream"):
            lines = ModuleAnalyzer.for_module(cls.__module__).find_attr_docs()
            found |= {key: " ".join(said).strip() for (owner, key), said in lines.items() if owner == cls.__name__}
    return found


def _entry(name: str, kind: str, default: str, meaning: str) -> str:
    again = ":no-index:\n" if name in _seen else ""
    _seen.add(name)
    return f":::{{confval}} {name}\n{again}:type: {kind}\n:default: {default}\n\n{meaning}\n:::\n\n"


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if value is None or value == "" or (isinstance(value, (list, dict)) and not value):
        return "left out"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"`{value}` ({value // 2**20} MiB)"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def shown_type(kind: Any) -> str:
    """A type in words of TOML."""
    if isinstance(kind, (types.UnionType,)) or get_origin(kind) is typing.Union:
        return _listed([shown_type(one) for one in get_args(kind) if one is not type(None)], "or")
    if get_origin(kind) is Literal:
        return _listed([f'`"{one}"`' for one in get_args(kind)], "or")
    if get_origin(kind) in (list, tuple):
        return f"list of {shown_type(get_args(kind)[0])}s"
    if get_origin(kind) is dict:
        return f"table of {shown_type(get_args(kind)[1])}s"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    return {str: "text", float: "number", int: "whole number", bool: "true or false"}[kind]


def _listed(words: list[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


MADE: dict[str, Callable[[], str]] = {"configuration": configuration, "kinds": kinds, "devices": devices}

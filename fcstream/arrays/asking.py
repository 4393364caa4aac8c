"""Makes functions about one array out of the options of kinds: the keys of a kind are the arguments of its function.

What a key is called, means, holds and is by default stands in the options alone, so signatures, documentation, checks
and releases follow from them. An `ArrayQuestion` adds what is about arrays: a first sentence, and which keys are
arguments.
"""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown
from ..noise.samplers import Noise
from ..releases.options import BuildContext, Options, keys_of, meanings_of
from ..releases.registry import find
from ..stream.lattice import Feature, Grid, Lattice
from .answering import answer_rows, checked_loss, dp_loss, paying
from .arguments import (
    Bounds,
    GivenRows,
    coded_rows,
    ends_of,
    naming_arguments,
    number_of,
    numbers_of,
    rows_of,
    texts_of,
    whole_of,
)
from .left_out import ArrayRelease

REQUIRED = inspect.Parameter.empty
PUBLIC = "must be given: it is public, and nothing about it is learned from the data"


class Argument(NamedTuple):
    """An argument that is no key of a kind, or differs from it.

    Attributes
    ----------
    meaning : str
    kind : type or str
        Its type; a text is only shown.
    default : object
        `REQUIRED` for none.
    """

    meaning: str
    kind: Any
    default: Any = REQUIRED


@dataclass(frozen=True)
class ArrayQuestion:
    """What a function about arrays asks.

    Attributes
    ----------
    kind : str
        The kind of the release.
    summary : str
        What it returns, in a sentence.
    keys : dict of str to str
        For each method the keys that it takes, in order; those with a star are required. The first method is the
        default; where there is only one, there is no argument `method`.
    example : str
        What a reader may run.
    rows : str
        Name of the first argument: ``points`` (n, d), ``values`` (n,) or ``rows`` (n, d) of codes.
    own : dict of str to Argument
        Arguments that are no keys, or have a meaning of their own.
    about : str
        More sentences for the documentation.
    prepare : callable
        Changes arguments by name to keys by name, after their types were checked.
    has_columns : bool
        Whether the release says what its columns are called, if nobody named them.
    places : tuple of str
        Keys that may be given by place.
    in_ball : bool
        Whether a public `ball` may be given in place of `bounds`.
    """

    kind: str
    summary: str
    keys: Mapping[str, str]
    example: str
    rows: str = "points"
    own: Mapping[str, Argument] = field(default_factory=dict)
    about: str = ""
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict
    has_columns: bool = False
    places: tuple[str, ...] = ()
    in_ball: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.keys) if len(self.keys) > 1 else ()

    def options(self, method: str) -> type[Options]:
        return find(self.kind, method or None)

    def names(self, method: str) -> list[str]:
        return [name.rstrip("*") for name in self.keys[method].split()]

    def arguments(self) -> dict[str, Argument]:
        """Return all arguments but the rows, in order."""
        found: dict[str, Argument] = {}
        for method, listed in self.keys.items():
            options = self.options(method)
            fields = {own.encode_name: own for own in msgspec.structs.fields(options)}
            said = meanings_of(options)
            for name in listed.split():
                key = name.rstrip("*")
                if key in self.own:
                    found.setdefault(key, self.own[key])
                    continue
                default = fields[key].default
                if key != name or default is msgspec.NODEFAULT:
                    default = REQUIRED if key != name else None
                found.setdefault(key, Argument(said[key], fields[key].type, default))
        if self.methods:
            found["method"] = Argument(
                meanings_of(self.options(self.methods[0]))["method"], Literal[self.methods], self.methods[0]
            )
        return found | {**(_OF_CODES if self.rows == "rows" else _OF_NUMBERS), **_OF_ALL, **self.own}


_ROWS = {
    "points": ("array (n, d)", "Rows; those that are not finite or lie outside `bounds` are left out one by one."),
    "values": ("array (n,)", "Values; those that are not finite or lie outside `bounds` are left out one by one."),
    "rows": (
        "int array (n, columns)",
        "The table as codes 0, 1, ... of levels; rows with a code beyond the column's levels are left out one by one.",
    ),
}
_OF_NUMBERS = {
    "step": Argument("Step of the lattice that rows are rounded to, in their units; far below their spread.", float),
    "bounds": Argument(
        "Lower and upper ends of the public ranges of all columns, or of each; not computed from the rows.", Bounds
    ),
    "names": Argument("Names of the columns. Left out: ``x0``, ``x1``, ...", list[str] | None, None),
}
_OF_CODES = {
    "levels": Argument("Numbers of levels of all columns, public. Left out: all are Boolean.", list[int] | None, None)
}
_OF_ALL = {"noise": Argument("Exact noise from the operating system by default.", Noise | None, None)}


def function_of(name: str, question: ArrayQuestion) -> Callable[..., ArrayRelease]:
    """Make the function of a question.

    Source
    ------
    Specification 13.1.
    """
    arguments = question.arguments()
    checked = [key for key in arguments if key not in (*_OF_NUMBERS, *_OF_CODES, *_OF_ALL)]

    def ask(*args: Any, **kwargs: Any) -> ArrayRelease:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        method = given["method"] if question.methods else next(iter(question.keys))
        values = {key: of_type(given[key], arguments[key].kind, key) for key in checked}
        _check_method(question, arguments, method, values)
        keys = question.prepare({key: value for key, value in values.items() if key in question.names(method)})
        learned = keys.pop("learned", False)
        rows, grid, columns = _read(question, given, learned=learned)
        options = _options(question.options(method), keys | {"method": method, "kind": question.kind})
        in_ball = question.in_ball and given["bounds"] is None
        if in_ball and "tree" in (method, getattr(options.chosen(BuildContext(grid))[0], "method", "")):
            options = msgspec.structs.replace(options, ball=None, center=None)  # it divides the box around the ball
        beyond = "unknown_level" if question.rows == "rows" else "out_of_range"
        answer = answer_rows(
            options, rows, grid, given["noise"], name=question.rows, beyond=beyond, may_be_none=in_ball
        )
        if columns and (question.has_columns or given["names"] is not None):
            answer = replace(answer, features=columns, transform=["none"] * len(columns))
        return answer

    signature = _signature(question, arguments)
    _name(ask, name, signature)
    made = naming_arguments(ask)
    made.__doc__ = _documentation(question, arguments)
    return made


def _name(made: Any, name: str, signature: inspect.Signature) -> None:
    made.__name__ = made.__qualname__ = name
    made.__module__ = f"{__package__}.functions"
    made.__signature__ = signature
    made.__annotations__ = {key: one.annotation for key, one in signature.parameters.items()}


def _signature(question: ArrayQuestion, arguments: Mapping[str, Argument]) -> inspect.Signature:
    either, alone = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(question.rows, either, annotation="ArrayLike")]
    for name in (*question.places, *(name for name in arguments if name not in question.places)):
        place = either if name in question.places else alone
        shown, default = shown_type(arguments[name].kind), arguments[name].default
        parameters.append(inspect.Parameter(name, place, default=default, annotation=shown))
    return inspect.Signature(parameters, return_annotation="ArrayRelease")


def _check_method(
    question: ArrayQuestion, arguments: Mapping[str, Argument], method: str, values: Mapping[str, Any]
) -> None:
    """Refuse arguments of other methods, which would change nothing, and the lack of required ones."""
    own = question.names(method)
    for name, value in values.items():
        if name == "method":
            continue
        if name not in own:
            if value != arguments[name].default:
                others = [other for other in question.keys if name in question.names(other) and other != "auto"]
                methods = f"method{'s' * (len(others) > 1)} {' and '.join(map(repr, others))}"
                raise ConfigError(f"belongs to {methods}, not to {method!r}", name, remedy="leave it out")
        elif value is None and f"{name}*" in question.keys[method].split():
            raise ConfigError(PUBLIC, name)


def _options(made: type[Options], keys: Mapping[str, Any]) -> Options:
    known = keys_of(made)
    return made(**{key: value for key, value in keys.items() if key in known and not (key == "method" and not value)})


def _read(question: ArrayQuestion, given: Mapping[str, Any], *, learned: bool) -> tuple[GivenRows, Grid, list[str]]:
    """Read the rows, and return the grid and the names of their columns."""
    if question.rows == "rows":
        return *coded_rows(given["rows"], given["levels"]), []
    what = "a list of numbers" if question.rows == "values" else "a rectangular array of numbers"
    rows = rows_of(given[question.rows], question.rows, what, is_column=question.rows == "values")
    in_ball = question.in_ball and given["bounds"] is None
    low, high = ends_of(given["bounds"], rows.width) if not in_ball else _around(given, rows.width)
    names = given["names"]
    columns = [f"x{k}" for k in range(rows.width)] if names is None else texts_of(names, "names")
    if len(columns) != rows.width:
        raise ConfigError(f"must name {rows.width} columns", "names", got=len(columns))
    lattice = Lattice(number_of(given["step"], "step"))
    features = [Feature(*each) for each in zip(columns, low.tolist(), high.tolist(), strict=True)]
    try:
        return rows, Grid(lattice, tuple(map(lattice.finest, features) if learned else features)), columns
    except ConfigError as error:
        if in_ball and error.key.startswith("features."):
            error.key = "ball"
        raise


def _around(given: Mapping[str, Any], width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the box around a public ball."""
    if given["ball"] is None:
        raise ConfigError("must be given, or else `ball` with `center`", "bounds")
    ball, center = number_of(given["ball"], "ball"), given["center"]
    middle = np.zeros(width) if center is None else np.array(numbers_of(center, "center"))
    if middle.shape != (width,):
        raise ConfigError(f"must list {width} numbers", "center", got=len(middle))
    if not 0 < ball < math.inf:
        raise ConfigError("must be a positive number", "ball", got=Shown(f"{ball:g}"))
    return ends_of((middle - ball, middle + ball), width)


# -- types -----------------------------------------------------------------------------------------------------------


def of_type(value: Any, kind: Any, name: str) -> Any:
    """Return an argument as a key of an options class holds it.

    Raises
    ------
    ConfigError
        It has another type.
    """
    if isinstance(kind, str):
        return value
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None:
        if type(None) in parts:
            return None
        raise ConfigError(PUBLIC, name)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    plain = [part for part in parts if part is not type(None) and get_origin(part) is not Literal]
    if isinstance(value, str) and (value in words or str in plain):
        return value
    if words and (isinstance(value, str) or not plain):
        wanted = [*(_WORDS[part] for part in plain), *map(repr, words)]
        raise ConfigError(f"must be {_listed(wanted)}", name, got=value)
    for part in plain:
        if part in _READERS:
            return _READERS[part](value, name)
    raise ConfigError(f"must be {_listed([_WORDS[part] for part in plain])}", name, got=value)


def _truth_of(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError("must be True or False", name, got=value)
    return bool(value)


_READERS: dict[Any, Callable[[Any, str], Any]] = {
    bool: _truth_of,
    int: whole_of,
    float: number_of,
    list[float]: numbers_of,
    list[str]: texts_of,
}
_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list[float]: "a list of numbers",
    list[str]: "a list of texts",
}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def shown_type(kind: Any) -> str:
    """Return a type as a signature shows it."""
    if isinstance(kind, str):
        return kind
    if kind == Bounds:
        return "Bounds"
    if kind is type(None):
        return "None"
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(shown_type, get_args(kind)))
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if get_origin(kind) is list:
        return f"Sequence[{shown_type(get_args(kind)[0])}]"
    return str(kind.__name__)


# -- documentation ---------------------------------------------------------------------------------------------------


def _documentation(question: ArrayQuestion, arguments: Mapping[str, Argument]) -> str:
    shape, what = _ROWS[question.rows]
    lines = [question.summary, ""]
    about = question.about + (" " if question.about else "")
    lines += [*_filled(f"{about}The array is one window, and its rows are the records.", 0), ""]
    lines += ["Parameters", "----------", f"{question.rows} : {shape}", *_filled(what)]
    for name, argument in arguments.items():
        optional = "" if argument.default is REQUIRED else ", optional"
        lines += [f"{name} : {_type_in_words(argument.kind)}{optional}", *_filled(argument.meaning)]
    lines += ["", "Returns", "-------", "ArrayRelease"]
    parts = _parts(question)
    for method, said in parts:
        if len(parts) > 1:
            lines += ["", *_filled(f'With ``method = "{method}"``:'), ""]
        for names, text in re.findall(r"^(\S.*)\n((?:    .*\n?)+)", said["Released"], re.MULTILINE):
            listed = ", ".join(f"``{name}``" for name in names.split(", "))
            lines += _filled(f"- {listed}: {' '.join(text.split())}", hanging=2)
    lines += [
        "",
        "Raises",
        "------",
        "ConfigError",
        *_filled("An argument is out of range, or does not fit the others."),
    ]
    lines += ["UnusableRecords", *_filled("No row can be used; nothing was charged.")]
    lines += ["", "Privacy", "-------"]
    for method, said in parts:
        which = f'With ``method = "{method}"`` protects' if len(parts) > 1 else "Protects"
        lines += _filled(
            f"{which} one row, added or removed, with {_law(question.names(method))}, whatever the rows hold: "
            f"{' '.join(said['Privacy'].split())} Cost: {' '.join(said['Cost'].split())}",
            0,
        )
    lines += _filled(
        "The losses of several calls add up, and the caller must keep account of them (see `PrivacyFilter`). Not "
        "covered: run time, and errors about the array's shape.",
        0,
    )
    sources = dict.fromkeys(" ".join(said["Source"].split()) for _, said in parts)
    lines += ["", "Source", "------", *_filled(" ".join(sources), 0)]
    lines += ["", "Examples", "--------", *textwrap.dedent(question.example).strip().splitlines()]
    return "\n".join(lines)


def _parts(question: ArrayQuestion) -> list[tuple[str, dict[str, str]]]:
    """Return the methods whose options differ, each with what its docstring says."""
    methods: dict[type[Options], str] = {}
    for method in question.keys:
        methods.setdefault(question.options(method), method)
    return [(method, _sections(options)) for options, method in methods.items()]


def _law(names: list[str]) -> str:
    if "rho" in names:
        return "(rho, delta)-zCDP" if "delta" in names else "rho-zCDP"
    return "(epsilon, delta)-DP"


def _filled(text: str, indent: int = 4, hanging: int = 0) -> list[str]:
    inner = " " * (indent + hanging)
    return textwrap.wrap(text, 116, initial_indent=" " * indent, subsequent_indent=inner)


def _type_in_words(kind: Any) -> str:
    if Bounds in (kind, *get_args(kind)[:1]):
        return "(float, float) or two sequences of d floats"
    shown = shown_type(kind).replace(" | None", "").replace("Sequence[", "sequence of ").replace("]", "")
    return shown.replace("Literal[", "").replace(" | ", " or ")


def _sections(options: type[Options]) -> dict[str, str]:
    """Return the sections of an options class's docstring, by title."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.getdoc(options) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# -- what some questions change --------------------------------------------------------------------------------------


def by_rho(keys: dict[str, Any]) -> dict[str, Any]:
    """Check the loss."""
    checked_loss(keys["rho"], keys.get("delta", 0.0))
    return keys


def by_epsilon(keys: dict[str, Any]) -> dict[str, Any]:
    """Turn ``epsilon`` and ``delta`` into the largest loss in zCDP that they pay for."""
    charged = paying(dp_loss(keys.pop("epsilon"), keys["delta"]))
    return keys | {"rho": charged.rho, "delta": charged.delta}

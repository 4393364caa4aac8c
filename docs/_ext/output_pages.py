"""What fcstream puts out, as Markdown: fields of releases, reasons, metrics, exit codes."""

import inspect
from collections.abc import Callable, Iterator

from numpydoc.docscrape import NumpyDocString
from prometheus_client import core

from fcstream import errors
from fcstream.engine.first_records import REMEDIES
from fcstream.formats import batch
from fcstream.local import protocol
from fcstream.releases.base import Release, Track
from fcstream.releases.reasons import HINTS, NO_INTERVAL
from fcstream.service import metrics
from fcstream.service.supervisor import STATES


def release_fields() -> str:
    """The keys of a release, in their order."""
    documented = NumpyDocString(inspect.getdoc(Release))["Attributes"]
    types = inspect.get_annotations(Release)
    rows = [(one.name, " ".join(one.desc)) for one in documented]
    return "".join(
        f":::{{confval}} {name}\n:type: {_json_type(types[name])}\n\n{said}\n:::\n\n"
        for names, said in rows
        for name in names.split(", ")
    )


def track_fields() -> str:
    documented = NumpyDocString(inspect.getdoc(Track))["Attributes"]
    rows = [(f"`{name}`", " ".join(one.desc)) for one in documented for name in one.name.split(", ")]
    return _table(("key", "meaning"), rows)


def refusal_reasons() -> str:
    return _table(
        ("reason", "what it means, and what to do"), [(f"`{name}`", _sentence(HINTS[name])) for name in HINTS]
    )


def missing_intervals() -> str:
    return _table(("word", "what it means"), [(f"`{name}`", _sentence(said)) for name, said in NO_INTERVAL.items()])


def rejection_reasons() -> str:
    rows = [(f"`{name}`", _sentence(said), REMEDIES.get(name, "")) for name, said in batch.MEANINGS.items()]
    return _table(("reason", "what it means", "what to look at where most records are rejected for it"), rows)


def device_reasons() -> str:
    return _table(
        ("reason", "what it means"), [(f"`{name}`", _sentence(said)) for name, said in protocol.MEANINGS.items()]
    )


def public_metrics() -> str:
    return _families(metrics._Streams([]).collect())


def exact_metrics() -> str:
    return _families(metrics._exact(core, []))


def states() -> str:
    return f"The label `state` is one of {', '.join(f'`{state}`' for state in STATES)}."


def exit_codes() -> str:
    rows = [("0", "Done.", "")]
    for code in sorted({one.exit_code for one in _errors()}):
        own = [one for one in _errors() if one.exit_code == code]
        said = " ".join(inspect.getdoc(one).partition("\n")[0] for one in own if one is not errors.FcstreamError)
        rows.append((str(code), said, ", ".join(f"`{one.__name__}`" for one in own)))
    return _table(("code", "what happened", "error in Python"), rows)


def _errors() -> list[type[errors.FcstreamError]]:
    return [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.FcstreamError)]


def _families(families: Iterator[core.Metric]) -> str:
    rows = []
    for one in families:
        suffix = {"counter": "_total", "info": "_info"}.get(one.type, "")
        labels = ", ".join(f"`{label}`" for label in one._labelnames) or "`version`, `python`"
        rows.append((f"`{one.name}{suffix}`", one.type, labels, _sentence(one.documentation)))
    return _table(("metric", "type", "labels", "meaning"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _json_type(annotation: str) -> str:
    words = {
        "str": "text",
        "int": "whole number",
        "float": "number",
        "bool": "true or false",
        "None": "null",
        "Track": "object",
    }
    return " or ".join(
        words.get(one, "list" if one.startswith("list") else "object") for one in annotation.split(" | ")
    )


MADE: dict[str, Callable[[], str]] = {
    function.__name__: function
    for function in (
        release_fields,
        track_fields,
        refusal_reasons,
        missing_intervals,
        rejection_reasons,
        device_reasons,
        public_metrics,
        exact_metrics,
        states,
        exit_codes,
    )
}

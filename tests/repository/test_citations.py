"""What docstrings and documents cite is in docs/design, and what docs/design names is in the code."""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fcstream

PACKAGE = Path(fcstream.__file__).parent
ROOT = next((above for above in Path(__file__).parents if (above / "docs" / "design").is_dir()), Path())
pytestmark = pytest.mark.skipif(
    not (ROOT / "docs/design").is_dir(), reason="docs/design is not beside the tests: run them in a checkout"
)

NUMBERS = r"\d+\.\d+(?:(?:,| and|, and| or| to) \d+\.\d+)*"
CITATION = re.compile(rf"\b(specification|proof|errat)(?:s|um|a)? ({NUMBERS})", re.IGNORECASE)
PAGES = {"specification": "specification.md", "proof": "proofs.md", "errat": "errata.md"}
SOURCE = re.compile(r"^Source\n------\n(.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
FORM = "write `Specification 4.2; proof 3.2; erratum 1.5; the paper.` and leave out what there is not (docs/design)"


@functools.cache
def headings(page: str) -> frozenset[str]:
    """Numbers of the headings of a page of docs/design."""
    return frozenset(re.findall(r"^#+ (\d+\.\d+) ", (ROOT / "docs/design" / page).read_text(), re.MULTILINE))


def citations(text: str) -> list[tuple[str, str]]:
    """Kinds (specification, proof, errat) and numbers of what a text cites."""
    plain = re.sub(r"\s*\n\s*#?\s*", " ", text)
    found = [(kind.lower(), re.findall(r"\d+\.\d+", numbers)) for kind, numbers in CITATION.findall(plain)]
    return [(kind, number) for kind, numbers in found for number in numbers]


def cited(code: object) -> list[tuple[str, str]]:
    """What the docstring of a class or function cites."""
    return citations(inspect.getdoc(code) or "")


def unresolved(text: str) -> list[str]:
    """Citations in a text that no heading bears out."""
    return [f"{kind} {number}" for kind, number in citations(text) if number not in headings(PAGES[kind])]


def find(path: str) -> object:
    """What a dotted name of the package stands for.

    Raises
    ------
    LookupError
        It stands for nothing.
    """
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            if not hasattr(found, name):
                raise LookupError(f"{path}: {'.'.join(parts[:split])} has no {name}")
            found = getattr(found, name)
        return found
    raise LookupError(f"{path}: no such module")


def missing(path: str) -> str | None:
    """What is wrong with a dotted name of the package; None if it can be imported."""
    try:
        find(path)
    except LookupError as error:
        return str(error.args[0])
    return None


def design_pages() -> list[Path]:
    return sorted(ROOT.glob("docs/design/*.md"))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """What each module says, read once."""
    return {path: ast.parse(path.read_text()) for path in modules()}


@functools.cache
def classes() -> frozenset[str]:
    """Names of all classes of the package."""
    nodes = (node for tree in trees().values() for node in ast.walk(tree))
    return frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef))


def texts() -> list[Path]:
    """Whatever may cite: code, tests, documents."""
    found = [path for folder in ("tests", "bench", "examples", "docs") for path in (ROOT / folder).rglob("*.*")]
    found = [path for path in found if path.suffix in (".py", ".md") and path != Path(__file__)]
    return sorted([*found, *modules(), *ROOT.glob("*.md")])


def documented(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and docstrings of classes and functions, and of what they hold."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, ast.get_docstring(child) or ""
            yield from documented(child, f"{prefix}{child.name}.")


def test_citations_resolve():
    wrong = [f"{path}: {', '.join(found)}" for path in texts() if (found := unresolved(path.read_text()))]
    assert not wrong, "\n".join(["docs/design has no such section; cite one that is there:", *wrong])


def test_nothing_cites_what_is_not_in_the_repository():
    wrong = [str(path) for path in texts() if re.search(r"design\s+notes?\b", path.read_text(), re.IGNORECASE)]
    assert not wrong, "\n".join([f"no design notes are in the repository; {FORM}:", *wrong])


@pytest.mark.slow
def test_every_source_begins_with_its_section():
    wrong = []
    for path, tree in trees().items():
        for name, text in documented(tree):
            for source in SOURCE.findall(text):
                if not re.match(rf"Specification {NUMBERS}[;.]", " ".join(source.split())):
                    wrong.append(f"{path}: {name}: {source[:60]!r}")
    assert not wrong, "\n".join([f"{FORM}:", *wrong])


@pytest.mark.parametrize("page", design_pages(), ids=lambda path: path.name)
def test_sections_of_the_same_page_exist(page):
    wrong = set(re.findall(r"§(\d+\.\d+)", page.read_text())) - headings(page.name)
    assert not wrong, f"{page.name} has no section {', '.join(sorted(wrong))}: name one that is there"


@pytest.mark.parametrize("page", design_pages(), ids=lambda path: path.name)
def test_named_code_exists(page):
    text = page.read_text()
    wrong = [found for path in re.findall(r"`(fcstream(?:\.\w+)+)`", text) if (found := missing(path))]
    wrong += [f"no class {name}" for name in re.findall(r"`([A-Z][a-z]+(?:[A-Z]\w*)?)`", text) if name not in classes()]
    assert not wrong, "\n".join([f"{page.name} names what is not in the code; name what took its place:", *wrong])


def test_code_cites_the_sections_that_name_it():
    wrong = []
    for section in (ROOT / "docs/design/specification.md").read_text().split("\n## ")[1:]:
        number = section.split()[0]
        for path in re.findall(r"`(fcstream(?:\.\w+)+)`", section):
            found = find(path)
            if (inspect.isclass(found) or inspect.isfunction(found)) and ("specification", number) not in cited(found):
                wrong.append(f"{path}: specification {number}")
    assert not wrong, "\n".join(["its docstring must cite the section that names it:", *wrong])


def test_code_lines_name_code_in_full():
    lines = re.findall(
        r"\bCode:\s+(.*?)(?=\n\n|\n#|\Z)", (ROOT / "docs/design/specification.md").read_text(), re.DOTALL
    )
    wrong = [line for line in lines if "`fcstream." not in line]
    assert lines
    assert not wrong, f"specification.md: begin with a name such as `fcstream.errors`: {wrong}"


def test_kinds_and_reasons_are_all_specified():
    from fcstream.releases.reasons import REASONS
    from fcstream.releases.registry import KINDS

    text = (ROOT / "docs/design/specification.md").read_text()
    kinds, reasons = (text.partition(f"## 12.{k} ")[2].partition("\nCode:")[0] for k in (1, 2))
    named = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", kinds, re.MULTILINE)]
    found = {"/".join([kind, *way]) for kind, *methods in named for way in ([method] for method in methods)}
    found |= {kind for kind, *methods in named if not methods}
    assert found == set(KINDS), (
        "specification 12.1 must list the kinds of releases that there are, each with its methods"
    )
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", reasons, re.MULTILINE)))) == set(REASONS)


def test_a_made_up_citation_is_reported():
    text = "Specification 4.2, 99.1; proofs 3.2 and 3.99;\n    erratum 77.7; Some paper 2022, section 5.99."
    assert unresolved(text) == ["specification 99.1", "proof 3.99", "errat 77.7"]
    assert unresolved("# as specification\n# 98.1 says") == ["specification 98.1"]
    assert not unresolved("Specification 4.2; proof 3.2; erratum 1.5; Tsfadia et al. 2022, Algorithm 3.")


def test_a_made_up_name_is_reported():
    assert missing("fcstream.errors.ConfigError") is None
    assert missing("fcstream.errors.Nothing") == "fcstream.errors.Nothing: fcstream.errors has no Nothing"
    assert missing("fcstream.nowhere.Thing") == "fcstream.nowhere.Thing: fcstream has no nowhere"

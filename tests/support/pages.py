"""The code blocks of a page, run in their order as a reader would: files are written, commands and Python are run.

Sybil would ask for a parser and an evaluator of each of these blocks besides, and makes a test of each block; here a
page is one test, since its blocks rest on each other.
"""

import importlib.metadata
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from packaging.requirements import Requirement

from support import REPOSITORY

FILES = {"toml", "json", "csv", "yaml", "ini"}
PROGRAMS = {"sh", "python"}
SERVICES = {"mqtt": 1883, "nats": 4222, "postgresql": 5432, "rabbitmq": 5672, "redis": 6379}
PATIENCE = 240.0  # seconds that one block may take
SHELL = 'while IFS= read -r block <&{0}; do source "$block" </dev/null; echo done >&{1}; done'
PROGRESS = re.compile(r"[\d,]+ (records read|(of [\d,]+ )?windows released)(, \d+%(, about \S+ (s|min|h) left)?)?")
PYTHON = """
import builtins, os
names = dict(__name__="__main__", __builtins__=builtins)
with open({0}) as blocks:
    for block in blocks:
        block = block.rstrip("\\n")
        exec(compile(open(block).read(), block, "exec"), names)
        os.write({1}, b"done\\n")
"""


class PageError(AssertionError):
    """A block that cannot be run, fails, or prints something else than the page says."""


@dataclass
class Block:
    """A fenced block: what it is for, and where it stands."""

    language: str
    text: str
    line: int
    options: dict[str, str] = field(default_factory=dict)
    output: bool = False  # what the block before it printed
    excuse: str | None = None  # why it is not run
    hidden: bool = False  # a command in a comment

    @property
    def is_file(self) -> bool:
        """Whether it is written, not run: files of data, and programs with a name."""
        return not self.output and (self.language in FILES or "caption" in self.options)


@dataclass(frozen=True)
class Page:
    """A page's blocks, and what it needs."""

    path: Path
    blocks: list[Block]
    services: list[str]
    extras: list[str]
    data: bool

    @property
    def excuses(self) -> list[str]:
        return [f"{self.path.name}:{block.line}: {block.excuse}" for block in self.blocks if block.excuse]

    def lacks(self) -> str | None:
        """What is needed and not here; None if nothing is missing."""
        for name in self.services:
            try:
                socket.create_connection(("127.0.0.1", SERVICES[name]), 2).close()
            except OSError:
                return f"no {name} on port {SERVICES[name]} of this machine"
        extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for one in (Requirement(text) for extra in self.extras for text in extras[extra]):
            try:
                importlib.metadata.version(one.name)
            except importlib.metadata.PackageNotFoundError:
                return f"{one.name} is not installed"
        if self.data and "FCSTREAM_DATA" not in os.environ:
            return "FCSTREAM_DATA does not name the folder of the real data"
        return None


def paths() -> list[Path]:
    """README.md and the pages of docs/, without what the build makes."""
    docs = REPOSITORY / "docs"
    made = {"gallery", "api"}
    pages = [path for path in docs.rglob("*.md") if not any(part[0] == "_" or part in made for part in _parts(path))]
    return [REPOSITORY / "README.md", *sorted(pages)]


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(REPOSITORY / "docs").parts


def read(path: Path) -> Page:
    """Reads a page.

    Raises
    ------
    PageError
        A block has no place in a page that is run.
    """
    text = path.read_text()
    meta, skipped = {}, 0
    if front := re.match(r"---\n(.*?)\n---\n", text, re.DOTALL):
        meta, skipped = yaml.safe_load(front[1]) or {}, front[0].count("\n")
        text = text[front.end() :]
    page = Page(path, [], meta.get("services", []), meta.get("extras", []), meta.get("data", False))
    excuse, output, caption = None, False, None
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            if found := re.search(r"<!-- not run: (.+?) -->", token.content, re.DOTALL):
                excuse = " ".join(found[1].split())
            if "<!-- output -->" in token.content:
                output = True
            if found := re.search(r"<!-- file: (.+?) -->", token.content):
                caption = found[1]
            if found := re.match(r"<!-- run: (.+?) -->", token.content, re.DOTALL):
                page.blocks.append(Block("sh", found[1] + "\n", token.map[0] + skipped + 1, hidden=True))
        elif token.type == "fence":
            block = _block(token, skipped)
            if block is not None:
                block.excuse, block.output = excuse, block.output or output
                if caption is not None:
                    block.options["caption"] = caption
                _check(block, page)
                page.blocks.append(block)
            excuse, output, caption = None, False, None
    return page


def _block(token, skipped: int) -> Block | None:
    """A block from a token; None for a directive that holds no code."""
    info, text, line = token.info.strip(), token.content, token.map[0] + skipped + 1
    if not (directive := re.match(r"\{(.+?)\}\s*(.*)", info)):
        return Block(info, text, line)
    if directive[1] not in ("code-block", "code"):
        return None
    options = {}
    while found := re.match(r":([\w-]+):[ ]?(.*)\n", text):
        options[found[1]] = found[2].strip()
        text = text[found.end() :]
    return Block(directive[2], text.lstrip("\n"), line, options, "output" in options.get("class", "").split())


def _check(block: Block, page: Page) -> None:
    """Refuses what would go unseen."""

    def wrong(rule: str) -> None:
        raise PageError(f"{page.path}:{block.line}: {rule}")

    if block.excuse:
        return
    before = page.blocks[-1] if page.blocks else None
    printing = before is not None and before.language in PROGRAMS and not before.is_file
    follows = printing and not before.hidden and not before.excuse
    if block.output:
        if not follows:
            wrong("an output follows the block that prints it")
    elif block.language == "text":
        return
    elif block.language in FILES:
        if "caption" not in block.options:
            wrong(f"a block of {block.language} is a file and has its name as `:caption:`, or is an output")
    elif block.language not in PROGRAMS:
        wrong(
            f"a block is {', '.join(sorted(PROGRAMS | FILES))} or text, not {block.language or 'without a language'!r}"
        )


class Session:
    """A shell or an interpreter that runs one block after another and keeps what they leave."""

    def __init__(self, command: list[str], folder: Path, printed: Path, environment: dict[str, str]) -> None:
        blocks, self.blocks = os.pipe()
        self.answers, answers = os.pipe()
        with printed.open("ab") as out:
            self.process = subprocess.Popen(
                [*command[:-1], command[-1].format(blocks, answers)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(blocks, answers),
                start_new_session=True,
            )
        os.close(blocks)
        os.close(answers)

    def run(self, script: Path) -> str | None:
        """Runs a block; what went wrong, or None."""
        os.write(self.blocks, f"{script}\n".encode())
        until = time.monotonic() + PATIENCE
        while not select.select([self.answers], [], [], 0.1)[0]:
            if self.process.poll() is not None:  # what it left running may hold the pipe open
                return f"ended with exit code {self.process.returncode}"
            if time.monotonic() > until:
                return f"took longer than {PATIENCE:g} seconds"
        return None if os.read(self.answers, 16) else f"ended with exit code {self.process.wait(10)}"

    def close(self) -> None:
        """Ends the session and whatever it left running."""
        os.close(self.blocks)
        os.close(self.answers)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()


def run(page: Page, folder: Path) -> None:
    """Runs a page in an empty folder.

    Raises
    ------
    PageError
        A block fails, or its output is not what the page says.
    """
    home, scratch = folder / "page", folder / "blocks"
    home.mkdir()
    scratch.mkdir()
    printed = scratch / "printed"
    printed.touch()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FCSTREAM": str(REPOSITORY),
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
    }
    commands = {"sh": ["bash", "-euo", "pipefail", "-c", SHELL], "python": [sys.executable, "-c", PYTHON]}
    sessions: dict[str, Session] = {}
    shown = b""
    try:
        for number, block in enumerate(page.blocks):
            place = f"{page.path}:{block.line}"
            if block.excuse:
                continue
            if block.output:
                if difference := compare(block.text, shown.decode(errors="replace")):
                    raise PageError(f"{place}: the block before it printed something else\n{difference}")
            elif block.is_file:
                write(home, block.options["caption"], block.text)
            elif block.language in PROGRAMS:
                if block.language not in sessions:
                    sessions[block.language] = Session(commands[block.language], home, printed, environment)
                script = scratch / f"{page.path.stem}-{number}.{block.language}"
                # Blank lines above make the numbers of lines those of the page.
                script.write_text("\n" * block.line + block.text)
                begin = printed.stat().st_size
                problem = sessions[block.language].run(script)
                shown = printed.read_bytes()[begin:]
                if problem:
                    raise PageError(f"{place}: the block {problem}; it printed\n{shown.decode(errors='replace')}")
    finally:
        for session in sessions.values():
            session.close()


def write(folder: Path, caption: str, text: str) -> None:
    """Writes a file. `NAME, added` appends to it; `NAME, changed` replaces the sections of TOML that are given."""
    name, _, how = caption.strip("`").partition(", ")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if how == "added":
        text = path.read_text().rstrip("\n") + "\n\n" + text
    elif how == "changed":
        given = [part.splitlines()[0] for part in _sections(text)]
        kept = [part for part in _sections(path.read_text()) if part.splitlines()[0] not in given]
        text = "".join(kept).rstrip("\n") + "\n\n" + text
    elif how:
        raise PageError(f"a caption is a file's name, alone or with ', added' or ', changed', not {caption!r}")
    path.write_text(text)


def _sections(text: str) -> list[str]:
    return [part for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE) if part.strip()]


def compare(said: str, printed: str) -> str | None:
    """How an output differs from what a page says; `...` stands for anything. None if it does not.

    Lines of progress, which only a run of many seconds prints, are left out.
    """

    def plain(text: str) -> str:
        lines = (line.rstrip() for line in text.strip().splitlines())
        return "\n".join(line for line in lines if not PROGRESS.fullmatch(line))

    pattern = ".*?".join(map(re.escape, plain(said).split("...")))
    if re.fullmatch(pattern, plain(printed), re.DOTALL):
        return None
    return f"--- the page says\n{plain(said)}\n--- it printed\n{plain(printed)}"

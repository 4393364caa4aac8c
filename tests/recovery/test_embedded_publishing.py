"""The program of the page about embedding, killed at every one of its lines and in the middle of every write."""

import json
import subprocess
import sys

import pytest
from support import REPOSITORY
from support.pages import read

from fcstream import read_releases

DRIVER = r'''
import builtins, contextlib, io, json, os, signal, sys
import fcstream, numpy
from fcstream import Engine, read_releases

code = compile(open("hall.py").read(), "hall.py", "exec")
opening = 1 + open("hall.py").read().splitlines().index("with Engine(CONFIG) as engine:")


class Halting(io.FileIO):
    """A file whose writes reach the disk in two halves, as they may when a process is killed."""

    def write(self, data):
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            super().write(half)
            self.event()


def run(at):
    """Run the program in a process of its own, killed at an event; returns how many events there were."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        number = 0

        def event():
            nonlocal number
            number += 1
            if number == at:
                os.kill(os.getpid(), signal.SIGKILL)

        def trace(frame, what, _):
            if frame.f_code.co_filename == "hall.py" and frame.f_code.co_name not in ("<listcomp>", "<genexpr>"):
                if what == "line" and (number or frame.f_lineno == opening):
                    event()
                return trace

        def opened(path, mode="r"):
            if mode.startswith("ab"):
                file = Halting(path, mode.replace("b", ""))
                file.event = event
                return file
            return builtins.open(path, mode)

        sys.stdout = open(os.devnull, "w")
        sys.argv = ["hall.py"]
        sys.settrace(trace)
        try:
            exec(code, {"__name__": "__main__", "open": opened})
        except BaseException as error:
            os.write(theirs, repr(error).encode())
            os._exit(1)
        os.write(theirs, str(number).encode())
        os._exit(0)
    os.close(theirs)
    status = os.waitpid(child, 0)[1]
    told = os.read(ours, 1000).decode()
    os.close(ours)
    if os.WIFSIGNALED(status):
        return None
    assert status == 0, told
    return int(told)


def clean():
    for name in os.listdir():
        if name.startswith(("hall.db", "published")):
            os.unlink(name)


sys.argv = ["hall.py"]
with contextlib.redirect_stdout(io.StringIO()):
    exec(code, {"__name__": "__main__"})  # here, so that what is imported later is imported once
clean()
events = run(0)
expected = len(open("published.jsonl").readlines())
for at in range(1, events + 1):
    clean()
    assert run(at) is None
    if b"\n" in open("published.jsonl", "rb").read() if os.path.exists("published.jsonl") else b"":
        read_releases("published.jsonl", library="pandas")
    run(0)
    lines = open("published.jsonl", "rb").read().splitlines()
    found = read_releases("published.jsonl", library="pandas")
    same = found.equals(read_releases("sqlite:hall.db", library="pandas"))
    if not (len(set(lines)) == len(lines) == expected and same):
        print(json.dumps({"at": at, "lines": len(lines), "expected": expected, "same": same}))
        sys.exit(1)
print(json.dumps({"events": events, "lines": expected}))
'''
ANSWERS = """[
        {"kind": "count", "name": "number", "rho": 1.0},
        {"kind": "sum", "name": "all", "rho": 1.0},
        {"kind": "quantiles", "name": "middle", "quantiles": [0.25, 0.5], "rho": 1.0, "delta": 1e-9},
        {"kind": "histogram", "name": "bins", "edges": [20.0], "rho": 1.0},
    ],"""


def program():
    """The page's program, with four answers and short windows."""
    page = read(REPOSITORY / "docs" / "tutorials" / "embedding.md")
    (text,) = [block.text for block in page.blocks if block.options.get("caption") == "hall.py"]
    for old, new in (
        ('{"kind": "mean", "radius": 3.0, "rho": 0.25, "delta": 1e-9, "size_hint": 1000},', ANSWERS),
        ('"length": "10s", "lateness": "2s"', '"length": "2s", "lateness": "1s"'),
        ('{"rho": 0.25, "delta": 1e-6}', '{"rho": 4.0, "delta": 1e-6}'),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.slow
def test_every_release_is_there_once_wherever_the_program_is_killed(tmp_path):
    (tmp_path / "hall.py").write_text(program())
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps([20.0 + k / 10 for k in range(2)])}\n" for _ in range(6)))
    run = subprocess.run(
        [sys.executable, "-c", DRIVER], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(run.stdout)
    assert told["lines"] == 2 * 4
    assert told["events"] > 80
    found = read_releases(tmp_path / "published.jsonl", library="pandas")
    assert set(found["answer"]) == {"number", "all", "middle", "bins"}

"""What runs the pages finds what is wrong in them."""

import pytest
from support import pages

FENCE = "```"


def run(folder, text):
    (folder / "page.md").write_text(text.replace("~~~", FENCE))
    pages.run(pages.read(folder / "page.md"), folder)
    return folder / "page"


def test_blocks_share_a_folder_a_shell_and_an_interpreter(tmp_path):
    made = run(
        tmp_path,
        """---
services: []
---
~~~{code-block} toml
:caption: a.toml

[one]
x = 1
[two]
y = 2
~~~
~~~{code-block} toml
:caption: a.toml, changed

[one]
x = 3
~~~
<!-- run: mkdir below -->
:::{note}
~~~sh
cd below; word=later
~~~
:::
~~~sh
sleep 600 & echo "$word: $(basename "$PWD")"; echo also >&2
~~~
~~~{code-block} text
:class: output
later: ...
also
~~~
~~~python
import tomllib
found = tomllib.load(open("a.toml", "rb"))
~~~
~~~python
print(found)
~~~
<!-- output -->
~~~text
{'two': {'y': 2}, 'one': {'x': 3}}
~~~
~~~{code-block} python
:caption: program.py
print("run as a program")
~~~
~~~sh
python ../program.py
~~~
~~~{code-block} text
:class: output
run as a program
~~~
<!-- file: b.json -->
~~~json
[1, 2]
~~~
~~~sh
cat ../b.json
~~~
<!-- output -->
~~~
[1, 2]
~~~
<!-- not run: nobody has it -->
~~~sh
exit 1
~~~
""",
    )
    assert (made / "below").is_dir()
    assert len(pages.read(tmp_path / "page.md").excuses) == 1


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("~~~sh\nfalse | true\n~~~", "page.md:1: the block ended with exit code 1"),
        ("~~~python\n1 / 0\n~~~", 'page-0.python", line 2, in <module>'),
        ("~~~sh\necho 12\n~~~\n~~~{code-block} text\n:class: output\n1...3\n~~~", "printed something else"),
        ("~~~{code-block} text\n:class: output\n1\n~~~", "an output follows the block that prints it"),
        (
            "~~~{code-block} python\n:caption: a.py\n1\n~~~\n<!-- output -->\n~~~text\n1\n~~~",
            "follows the block that pri",
        ),
        ("~~~toml\nx = 1\n~~~", "has its name as `:caption:`"),
        ("~~~bash\ntrue\n~~~", "not 'bash'"),
        ("~~~\ntrue\n~~~", "not 'without a language'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, rule):
    with pytest.raises(pages.PageError) as raised:
        run(tmp_path, text)
    assert rule in str(raised.value)


@pytest.mark.parametrize(
    "line",
    [
        "87,622 records read",
        "40,000 records read, 45%, about 18 s left",
        "3 of 1,144 windows released, 0%, about 12 min left",
        "0 of 12 windows released, 0%",
        "12 windows released",
    ],
)
def test_progress_of_a_long_run_is_not_compared(line):
    said = "first\n40000 records read, 0 rejected"
    assert pages.compare(said, said.replace("\n", f"\n{line}\n")) is None
    assert pages.compare(said, said.replace("0 rejected", "1 rejected")) is not None


def test_a_page_says_what_it_lacks(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("---\nservices: [nats]\n---\n")
    monkeypatch.setitem(pages.SERVICES, "nats", 1)
    assert "no nats on port 1" in pages.read(tmp_path / "page.md").lacks()

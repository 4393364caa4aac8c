"""Directive `picture`: runs docs/pictures/NAME.py and shows what it draws, once for light and once for dark pages.

    ```{picture} NAME
    :alt: What a reader who does not see it should know.

    The caption.
    ```

A script draws with `matplotlib.pyplot` and does not save; colors that it does not name are those of the page. (The
directive of matplotlib itself draws one picture for both, and cannot be used from Markdown.)
"""

import runpy
from pathlib import Path

import matplotlib
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CYCLE = {
    "light": ["#1b6ca8", "#c4501b", "#2e7d4f", "#8a3f9e", "#8a6d00"],
    "dark": ["#6cb6ff", "#ff9b6a", "#7ad19b", "#d79bea", "#e0c34c"],
}
INK = {"light": "#24292f", "dark": "#d4d8dd"}
FAINT = {"light": "#d0d4d9", "dark": "#4a4f57"}


def colors(mode: str) -> dict[str, object]:
    """Settings of matplotlib for light or dark pages."""
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK[mode])
    return {
        **ink,
        "axes.prop_cycle": plt.cycler(color=CYCLE[mode]),
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.figsize": (7.2, 4.0),
        "figure.constrained_layout.use": True,
        "font.size": 11,
        "grid.color": FAINT[mode],
        "legend.frameon": False,
        "savefig.transparent": True,
        "svg.hashsalt": "fcstream",
    }


def draw(script: Path, mode: str, target: Path) -> None:
    """Runs a script and saves its picture."""
    with plt.rc_context({**matplotlib.rcParamsDefault, "backend": "Agg", **colors(mode)}):
        runpy.run_path(str(script), run_name="__main__")
        if len(plt.get_fignums()) != 1:
            raise ValueError(f"{script.name} draws {len(plt.get_fignums())} figures; a picture is one")
        plt.gcf().savefig(target, metadata={"Date": None})
        plt.close("all")


class Picture(SphinxDirective):
    """Shows a picture that a script draws."""

    required_arguments = 1
    has_content = True
    option_spec = {"alt": directives.unchanged_required, "name": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        if "alt" not in self.options:
            raise self.error("a picture needs `:alt:`")
        source = Path(self.env.srcdir)
        script = source / "pictures" / f"{self.arguments[0]}.py"
        self.env.note_dependency(str(script))
        made = source / "_build" / "pictures"
        made.mkdir(parents=True, exist_ok=True)
        figure = nodes.figure()
        for mode in ("light", "dark"):
            target = made / f"{script.stem}-{mode}.svg"
            draw(script, mode, target)
            image = nodes.image(
                uri=f"/_build/pictures/{target.name}", alt=self.options["alt"], classes=[f"only-{mode}"]
            )
            figure += image
        if self.content:
            caption = nodes.caption("", "", *self.parse_inline(" ".join(self.content))[0])
            figure += caption
        self.add_name(figure)
        return [figure]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": False}

"""The site: `sphinx-build -W --keep-going -n docs docs/_build/html` makes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import fcstream

project = "fcstream"
release = version = fcstream.__version__
author = "the developers of fcstream"

extensions = [
    "myst_parser",  # pages are Markdown
    "sphinx.ext.autodoc",  # docstrings of public names
    "sphinx.ext.autosummary",
    "numpydoc",  # which are written in numpydoc's form
    "docstrings",  # docs/_ext: with sections of their own
    "sphinx_design",  # cards and tabs
    "sphinx_copybutton",  # copies a block without its prompt
    "sphinx_click",  # the command line
    "sphinx_gallery.gen_gallery",  # runs examples/*.py
    "pictures",  # docs/_ext: runs docs/pictures/*.py
    "gallery_links",  # docs/_ext: a link to a program of the gallery leads to its page
    "reference",  # docs/_ext: writes the reference from the code
]

# Pages. GitHub shows the README of a folder, and so does the site.
exclude_patterns = ["_*", "gallery/*.ipynb", "gallery/*.py", "**/sg_execution_times.rst"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_block", "attrs_inline", "substitution"]
myst_heading_anchors = 3
suppress_warnings = [
    "misc.highlighting_failure",  # outputs with "..." are no JSON
    "toc.empty_glob",  # a folder whose pages are still to come
]
nitpicky = True

# Docstrings.
templates_path = ["_templates"]
autosummary_generate = True
autodoc_typehints = "none"  # parameters have their types in the text
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # docs/_templates shows them
numpydoc_xref_param_type = False
default_role = "code"

# The gallery: every file is run, and a failure ends the build.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
}

# Looks. Nothing is loaded from elsewhere: the theme brings its styles, and no page has formulas to typeset.
html_theme = "furo"
html_title = "fcstream"
html_static_path = ["_static"]
html_css_files = ["fcstream.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
pygments_style = "friendly"
pygments_dark_style = "monokai"

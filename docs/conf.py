"""Configuration of the site, which ``make docs`` builds into docs/_build/html."""

import importlib.util
import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]  # this copy of the package, gallery_order

import dinozaur_no  # noqa: E402
from dinozaur_no import gno, metrics, plots  # noqa: E402

#: Names that the reference explains.
PARTS = (dinozaur_no, gno, metrics, plots)
PUBLIC = {name for part in PARTS for name in part.__all__}

project = "dinozaur-no"
author = "dinozaur-no contributors"
copyright = author
release = version = dinozaur_no.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "upstream", "auto_examples/*.ipynb", "**/*.py.md5"]
templates_path = ["_templates"]

# Pages are Markdown that a web host of repositories shows as well.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"dinozaur-no {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
highlight_language = "none"  # of blocks that name no language: commands, formulas
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# Formulas need no network: a package on PyPI has one file of MathJax that makes vector
# graphics and so needs no fonts.
_mathjax = importlib.util.find_spec("sphinx-mathjax-offline")
html_static_path.append(str(Path(_mathjax.origin).parent / "static/mathjax/tex-svg.js"))
mathjax_path = "tex-svg.js"

# The reference comes from the docstrings. `Name` in them is a link.
default_role = "py:obj"
autosummary_generate = True
autodoc_preserve_defaults = True  # math.exp(-4), not its digits
autodoc_typehints = "none"  # numpydoc's sections name the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Every link must lead somewhere, except for the names of other packages, whose
# inventories would have to be fetched.
nitpicky = True
nitpick_ignore_regex = [
    (
        "py:.*",
        r"FNO|TFNO|GINO|FNOGNO|UNO|GNOBlock|SpectralConv|Trainer|IntegralTransform|"
        r"NeighborSearch|LinearChannelMLP|UnitGaussianNormalizer|DataLoader|"
        r"from_checkpoint",
    ),
    ("py:.*", r"(torch|nn|neuralop|matplotlib|functools)\..*"),
    ("py:.*", r"dinozaur_no\..*SegmentSum"),  # not public
]

# EXAMPLES=1 runs the examples that are new or have changed, which takes minutes.
run_examples = os.environ.get("EXAMPLES", "0") not in ("", "0")
_staged = HERE / "_build/examples"  # the scripts, and a header that says what was run


def _was_run(script: Path) -> bool:
    """Return whether an earlier build ran this script; its output is shown again."""
    shown = HERE / "auto_examples" / script.name
    finished = shown.with_name(f"{script.name}.md5")
    return finished.exists() and shown.read_bytes() == script.read_bytes()


def _stage_examples() -> None:
    shutil.rmtree(_staged, ignore_errors=True)
    _staged.mkdir(parents=True)
    scripts = sorted((ROOT / "examples").glob("plot_*.py"))
    for script in scripts:
        shutil.copy2(script, _staged)
    header = (ROOT / "examples/README.rst").read_text(encoding="utf-8")
    if not run_examples and not all(map(_was_run, scripts)):
        header += (
            "\n.. note::\n\n   This site was built without running all scripts, so "
            "printed lines and pictures are missing.\n   "
            "``make docs EXAMPLES=1`` runs them.\n"
        )
    (_staged / "GALLERY_HEADER.rst").write_text(header, encoding="utf-8")


_stage_examples()
sphinx_gallery_conf = {
    "examples_dirs": str(_staged),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "gallery_order.LearningOrder",
    "plot_gallery": run_examples,
    "default_thumb_file": str(HERE / "_static/heat_thumb.png"),
    "download_all_examples": False,
    "min_reported_time": 0 if run_examples else 1e9,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "abort_on_example_error": True,
}
warnings.filterwarnings("ignore", category=UserWarning, module="neuralop")
warnings.filterwarnings("ignore", message=r"FNO\.forward\(\) received unexpected")
warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`")


def _readme_as_start_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the text of README where index.md includes it, with links seen from docs/."""
    directive = "```{include} ../README.md\n```"
    if directive in source[0]:
        readme = ROOT / "README.md"
        app.env.note_dependency(str(readme))
        text = readme.read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!https:|docs/|#)", "](../", text)
        text = text.replace("](docs/", "](").replace("](../CHANGELOG", "](changelog")
        source[0] = source[0].replace(directive, text)


def _links_into_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Show links to files outside docs/ as code: the site has README alone of them."""
    source[0] = source[0].replace("](../README.md", "](index.md")
    link = r"\[`?([^\]`]+)`?\]\(\.\./[^)]*\)"
    source[0] = re.sub(link, r"`\1`", source[0])


def _names_as_links(app: Sphinx, doctree: nodes.document) -> None:
    """Link names of the package in the text of a page to the reference."""
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().removesuffix("()")
        inside = isinstance(
            literal.parent, nodes.reference | nodes.title | pending_xref
        )
        if name in PUBLIC and not inside:
            link = pending_xref("", refdomain="py", reftype="obj", reftarget=name)
            link["refdoc"] = app.env.docname
            literal.replace_self(link)
            link += literal


def _shapes_as_code(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Show shapes such as (b, c, *grid), which docstrings do not quote, as code."""
    shape = re.compile(r"(?<!`)\((\w[\w, ]*, )?\*\w[\w. ]*\)")
    lines[:] = [shape.sub(r"``\g<0>``", line) for line in lines]


def _names_of_the_package(
    app: Sphinx, env: BuildEnvironment, node: Any, content: Any
) -> Any:
    """Find `Predictive` wherever it is mentioned, not only in its own module."""
    target = node["reftarget"]
    places = ("", ".metrics", ".plots", ".gno", ".uncertainty.conformal")
    known = env.get_domain("py").objects
    for full in (f"dinozaur_no{place}.{target}" for place in places):
        if node.get("refdomain") == "py" and full in known:
            page = node.get("refdoc", env.docname)
            found = known[full]
            return make_refnode(
                app.builder, page, found.docname, found.node_id, content, full
            )
    return None


def setup(app: Sphinx) -> None:
    """Connect the functions above; Sphinx calls this."""
    app.connect("source-read", _readme_as_start_page, priority=400)
    app.connect("source-read", _links_into_the_repository)
    app.connect("doctree-read", _names_as_links)
    app.connect("autodoc-process-docstring", _shapes_as_code, priority=100)
    app.connect("missing-reference", _names_of_the_package)

"""Sphinx's settings for the reference that `make docs` builds.

Python's part is read from the sources (sphinx-autoapi imports nothing), C++'s from what Doxygen wrote to
build/docs/doxygen. The pages are the repository's own Markdown files, which tools/docs.sh copies.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

TOP = Path(__file__).resolve().parents[2]
BUILT = TOP / "build" / "docs"


def version_of_project() -> str:
    """The version, from the only place where it is written."""
    found = re.search(r'^version = "(.*)"$', (TOP / "pyproject.toml").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("pyproject.toml has no version")
    return found[1]


project = "Innkeeper"
author = "The Innkeeper developers"
project_copyright = "The Innkeeper developers, Apache License 2.0"
release = version = version_of_project()
extensions = ["myst_parser", "autoapi.extension", "breathe"]
exclude_patterns = ["docs/site/**"]
html_theme = "furo"
html_title = f"Innkeeper {release}"
html_copy_source = False
myst_heading_anchors = 4

autoapi_dirs = [str(TOP / "python" / "innkeeper")]
autoapi_generate_api_docs = False  # reference/python.rst names each object
autoapi_add_toctree_entry = False
autoapi_options = ["members", "imported-members", "show-inheritance"]
autodoc_typehints = "signature"

breathe_projects = {"innkeeper": str(BUILT / "doxygen" / "xml")}
breathe_default_project = "innkeeper"

# A directory, which a host of repositories lists, is answered by the page that lists it here.
LISTS = {
    "docs/decisions": "reference/decisions",
    "docs/design": "reference/design",
    "docs/internals": "docs/internals/engine",
    "examples/cpp": "examples/cpp/README",
}


def link_directories(app: Sphinx, doctree: nodes.document) -> None:
    """Has each link to a directory lead to the page that lists it."""
    here = posixpath.dirname(app.env.docname)
    for node in doctree.findall(pending_xref):
        page = LISTS.get(posixpath.normpath(posixpath.join(here, node.get("reftarget", ""))))
        if node.get("reftype") == "myst" and page:
            node.attributes.update(refdomain="doc", reftarget=page, reftargetid=None)


def read_google_style(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Reads Args, Returns and Raises, as the extension napoleon does.

    The extension itself would take the words before a colon in an attribute's first line for its type.
    """
    kind = "object" if what in ("attribute", "data", "property") else what
    lines[:] = GoogleDocstring(lines, Config(), app, kind, name, obj, options).lines()


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds the parts that no setting covers."""
    app.add_lexer("errors", TextLexer)  # docs/settings.md: a setting, then the error that it gives
    app.connect("doctree-read", link_directories)
    app.connect("autodoc-process-docstring", read_google_style)
    return {}

#!/usr/bin/env bash
# Builds the documents and the reference of Python and C++ into build/docs/html. A warning of Doxygen or Sphinx is an
# error. Nothing is compiled or imported: Python's part is read from the sources, C++'s from the public headers.
# QUICK=1: checks all pages and links, and writes no HTML.
source "$(dirname "$0")/common.sh"
command -v doxygen >/dev/null || die "doxygen is not installed; run: make docs"

# A copy of the pages and of what they link to, where each is in the repository, so that links between them hold. All
# is built from nothing: Sphinx is silent about a page that an earlier run has read.
pages=build/docs/pages
rm -rf build/docs
mkdir -p "$pages"
find ./*.md LICENSE docs examples include python src \( -name '*.md' -o -name '*.rst' -o -name '*.svg' -o -name '*.png' -o \
  -name '*.txt' -o -name '*.1' -o -name '*.h' -o -name '*.cc' -o -name '*.py' -o -name LICENSE \) -type f -print0 |
  xargs -0 cp --parents -t "$pages"
cp -R docs/site/index.rst docs/site/reference "$pages"

header "C++: Doxygen"
{ cat docs/site/Doxyfile; echo "OUTPUT_DIRECTORY = build/docs/doxygen"; } | doxygen -

header "Pages and Python: Sphinx"
builder=html
[ -z "${QUICK:-}" ] || builder=dummy
"$VENV_PYTHON" -m sphinx --builder "$builder" --fail-on-warning --keep-going --quiet \
  --conf-dir docs/site --doctree-dir build/docs/doctrees "$pages" "build/docs/$builder"
[ -n "${QUICK:-}" ] || echo "Open build/docs/html/index.html"

"""The reference that `make docs` builds: it has every public name, and Doxygen sees the headers' comments."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from doxygen_comments import convert

REFERENCE = ROOT / "docs" / "site" / "reference"
HEADERS = sorted((ROOT / "include" / "innkeeper").rglob("*.h"))


def names_in_all(path: Path) -> set[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no __all__")


def declared(text: str) -> set[str]:
    """Types and functions of a header's outer namespace, without those of parts that only templates need."""
    text = re.sub(r"namespace parallel_parts {.*?}  // namespace parallel_parts", "", text, flags=re.DOTALL)
    types = re.findall(r"^(?:class|struct|enum class) (?:IK_EXPORT )?(\w+)\b[^;]*{", text, re.MULTILINE)
    marked = re.findall(r"^(?:\[\[nodiscard\]\] )?IK_EXPORT [^;(]*?(\w+)\(", text, re.MULTILINE)
    inline = re.findall(r"^inline [^;(]*?(\w+)\(", text, re.MULTILINE)
    templates = re.findall(r"^template <.*>\n\S+ (\w+)\(", text, re.MULTILINE)
    return {*types, *marked, *inline, *templates}


def test_every_public_name_of_python_is_in_the_reference() -> None:
    page = (REFERENCE / "python.rst").read_text()
    listed = set(
        re.findall(r"^\.\. autoapi(?:function|class|data|module):: innkeeper\.(\w+)$", page, re.MULTILINE)
    )
    assert listed == names_in_all(ROOT / "python" / "innkeeper" / "__init__.py")


def test_every_public_name_of_cpp_is_in_the_reference() -> None:
    page = (REFERENCE / "cpp.rst").read_text()
    listed = set(re.findall(r"^\.\. doxygen\w+:: (?:\w+::)*(\w+)(?:\(|$)", page, re.MULTILINE))
    public = {name for header in HEADERS for name in declared(header.read_text())}
    assert {"Choice", "ChoiceMode", "GPU", "configure", "auto_choice", "data_parallel", "devices"} <= public
    assert listed == public


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.relative_to(ROOT / "include").as_posix())
def test_a_header_only_gets_marks_for_doxygen(header: Path) -> None:
    text = header.read_text()
    lines = convert(text).splitlines()
    assert lines.pop(0) == "/// @file"
    plain = "\n".join(re.sub(r"(^|\s)(//)/<?(?=\s|$)", r"\1\2", line) for line in lines) + "\n"
    assert "".join(plain.split()) == "".join(text.split())


def test_comments_that_document_are_marked_and_no_others() -> None:
    header = """\
// The file.
//
//   code();
#pragma once

// No declaration follows.

namespace innkeeper {

// A type.
struct Node {
  int64_t budget = 0;  // Bytes.
  // Two lines
  // of it.
  int64_t peak = 0;
};

// A function.
inline int twice(const std::string& text = "{") {
  // How.
  return 2;  // Why.
}
}  // namespace innkeeper
"""
    assert (
        convert(header)
        == """\
/// @file
/// The file.
///
///       code();
#pragma once

// No declaration follows.

namespace innkeeper {

/// A type.
struct Node {
  int64_t budget = 0;  ///< Bytes.
  /// Two lines
  /// of it.
  int64_t peak = 0;
};

/// A function.
inline int twice(const std::string& text = "{") {
  // How.
  return 2;  // Why.
}
}  // namespace innkeeper
"""
    )

"""Doxygen's filter of a public header: prints it with those comments marked that document a declaration.

    doxygen_comments.py HEADER

The headers have plain `//` comments, as all C++ here. A run of whole lines documents the next declaration,
and a comment behind code documents that code. Comments in the bodies of functions stay plain. A block that
is indented by two columns or more is code. The first run of a file documents the file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

WHOLE = re.compile(r"(\s*)//(?: |$)(.*)")
BEHIND = re.compile(r"(\s*[^\s}].*[;,{}()\w])\s+// (.*)")  # No comment behind }: it names the scope.
SCOPE = re.compile(r"\b(?:namespace|class|struct|enum)\b")


class Scopes:
    """The braces that are open: of namespaces and types, or of code."""

    def __init__(self) -> None:
        self.open: list[bool] = []  # whether each is a namespace's or a type's
        self.head = ""  # The text after the last brace or semicolon.

    def read(self, code: str) -> None:
        """Goes over one line without its comment."""
        for char in re.sub(r'"(?:\\.|[^"\\])*"', '""', code):
            if char == "{":
                self.open.append(SCOPE.search(self.head) is not None and "(" not in self.head)
                self.head = ""
            elif char == "}" and self.open:
                self.open.pop()
                self.head = ""
            elif char == ";":
                self.head = ""
            else:
                self.head += char
        self.head += " "

    def declares(self) -> bool:
        """Whether a declaration may stand here: in no function, in no initializer."""
        return all(self.open)


def marked(lines: list[str]) -> list[str]:
    """The text of a run of comment lines, blocks of code indented as Markdown has them."""
    result = []
    code = before_blank = False
    for line in lines:
        if line.strip():
            code = line.startswith("  ") and (code or before_blank)
        before_blank = not line.strip()
        result.append(f"    {line}" if code and line.strip() else line)
    return result


def convert(text: str) -> str:
    """A header's text for Doxygen: a line longer than before, by the mark of the file's own comment."""
    scopes = Scopes()
    done: list[str] = []
    run: list[str] = []  # comment lines that were read and not printed yet
    indent = ""

    def end_run(document: bool) -> None:
        mark = "///" if document else "//"
        if run and not done:
            done.append("/// @file")
        done.extend(f"{indent}{mark} {line}".rstrip() for line in (marked(run) if document else run))
        run.clear()

    for line in text.splitlines():
        whole = WHOLE.fullmatch(line)
        if whole:
            indent = whole[1]
            run.append(whole[2])
            continue
        # A run that a blank line follows belongs to no declaration; the first is the file's.
        end_run(not done or (line.strip() != "" and scopes.declares()))
        behind = BEHIND.fullmatch(line)
        scopes.read(behind[1] if behind else line)
        if behind and "NOLINT" not in behind[2] and scopes.declares() and not line.startswith("#"):
            line = f"{behind[1]}  ///< {behind[2]}"
        done.append(line)
    end_run(False)
    return "\n".join(done) + "\n"


def main() -> int:
    """Runs the filter; returns the exit status."""
    sys.stdout.write(convert(Path(sys.argv[1]).read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

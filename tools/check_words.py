"""Holds comments, documents and help to the vocabulary, and measures how far the structure is.

    check_words.py            refuses words and identifiers that were given up
    check_words.py --measure  prints each figure of today, and its ceiling
    check_words.py --lower    lowers the ceilings to the figures of today

`tools/words.txt` has a line for each word and each identifier that was given up, and for each measure of the
structure, with the most that there may be, and why. A file that a comment or a document names must exist; a
line lists those of other projects. A ceiling only falls. Where fewer words, identifiers or files are left
than its line says, that is a failure too, so that the line is lowered in the same commit.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(os.environ.get("WORDS_OF", Path(__file__).parent.parent))  # elsewhere for tests
LIST = TOP / "tools" / "words.txt"
DIRECTORIES = ("src", "include", "python", "tools", "bench", "tests", "examples", "cmake", "docs")
PRONOUNS = r"whoever|whomever|who|whom|nobody|somebody|anybody|everybody"
LONE_WHAT = r"what (?:is|was|are|were|it|they|he|does|has|have|had|may|can|must|this|that|the|a|an|no|not)\b"
# A comment behind code that begins so goes on with another one's sentence.
FRAGMENT = re.compile(
    r"(?:and|or|but|of|in|on|at|to|by|for|from|with|without|behind|beside|before|after|since|until|as|than|"
    r"that|which|who|whose|where|when|while|it|its|they|their|them|this|these|those|he|his|him)\b"
)
# A file that a text names, with any part of its path. A name with a line's number belongs to an older commit,
# and a file in build/ is made later; neither is looked at, nor are relative paths and patterns.
NAMED_FILE = re.compile(r"(?<![\w./*<~$}-])(?!build/)(\w[\w./-]*\.(?:h|cc|py|sh|md))\b(?![\w/*(]|:\d)")


class Limit(NamedTuple):
    """A line of the list."""

    kind: str  # "word", "name", "file" or "measure"
    text: str
    most: int | float
    why: str

    def line(self) -> str:
        """As it stands in the list."""
        return f"{self.kind} {self.most} {self.text}: {self.why}"


def limits() -> list[Limit]:
    """The lines of the list: KIND MOST TEXT: WHY."""
    found = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, most, rest = line.split(maxsplit=2)
            text, why = rest.split(": ", 1)
            found.append(Limit(kind, text, float(most) if "." in most else int(most), why))
    return found


def files(*endings: str) -> list[Path]:
    """Files of the repository, but for this tool and its list."""
    found = [path for path in TOP.iterdir() if path.name.endswith(endings)]
    for directory in DIRECTORIES:
        found += [path for path in sorted((TOP / directory).rglob("*")) if path.name.endswith(endings)]
    return [path for path in found if path.is_file() and path not in (LIST, Path(__file__).resolve())]


class Comment(NamedTuple):
    """One comment, a line or a run of whole lines."""

    path: Path
    text: str
    trails: bool  # it stands behind code


def cxx_comments(path: Path) -> Iterator[Comment]:
    """Those of a file of C++. A string that contains // is taken for one now and then."""
    run: list[str] = []
    for line in [*path.read_text().splitlines(), ""]:
        whole = re.match(r"\s*//+ ?(.*)", line)
        if whole:
            run.append(whole[1])
            continue
        if run:
            yield Comment(path, "\n".join(run), trails=False)
            run = []
        behind = re.search(r"[;,{})\w]\s+// (.*)", line)
        if behind and "NOLINT" not in behind[1]:
            yield Comment(path, behind[1], trails=True)


def python_comments(path: Path) -> Iterator[Comment]:
    """Those of a file of Python, and its docstrings."""
    source = path.read_text()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|fmt:)", token.string):
                trails = token.line[: token.start[1]].strip() != ""
                yield Comment(path, token.string.lstrip("# "), trails)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield Comment(path, text, trails=False)
    except (SyntaxError, tokenize.TokenError):  # a test's bad input
        return


def comments() -> Iterator[Comment]:
    """All comments of code."""
    for path in files(".h", ".cc"):
        yield from cxx_comments(path)
    for path in files(".py"):
        yield from python_comments(path)


def per_thousand(pattern: str, texts: list[str]) -> float:
    """How often it occurs in a thousand words."""
    words = sum(len(text.split()) for text in texts)
    return round(1000 * sum(len(re.findall(rf"\b(?:{pattern})\b", text, re.I)) for text in texts) / words, 1)


def declarations(source: str, name: str) -> int:
    """Of a class: functions, types and members, by their ends at its own level."""
    body = re.search(rf"^(?:class|struct) {name}\b[^;{{]*{{(.*?)^}};", source, re.MULTILINE | re.DOTALL)
    if body is None:
        return 0
    plain = re.sub(r"//.*", "", body[1])
    depth = count = 0
    for mark in re.findall(r"[{};]", plain):
        depth += {"{": 1, "}": -1, ";": 0}[mark]
        count += mark == ";" and depth == 0
        count += mark == "}" and depth == 0
    return count


def largest_class(directory: str) -> int:
    """Declarations of the class with most, in the headers of a directory."""
    most = 0
    for path in (TOP / directory).glob("*.h"):
        source = path.read_text()
        for name in re.findall(r"^(?:class|struct) (\w+)[^;]*{$", source, re.MULTILINE):
            most = max(most, declarations(source, name))
    return most


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, those of functions too, but for those of type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from imports(node)


def python_circles() -> int:
    """Files of the Python package that import one another in a circle, directly or not."""
    package = TOP / "python" / "innkeeper"
    names = {}
    for path in package.rglob("*.py"):
        parts = ("innkeeper", *path.relative_to(package).with_suffix("").parts)
        names[".".join(part for part in parts if part != "__init__")] = path
    links: dict[str, set[str]] = {}
    for name, path in names.items():
        wanted: set[str] = set()
        for node in imports(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {each if each in names or each.endswith("._C") else node.module for each in inner}
        links[name] = (wanted & names.keys()) - {name}

    def reaches(start: str) -> bool:
        seen: set[str] = set()
        waiting = list(links[start])
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                waiting.extend(links[name])
        return False

    return sum(reaches(name) for name in names)


def measures(every: list[Comment]) -> dict[str, Callable[[], int | float]]:
    """Each measure by its name in the list."""
    engine = (TOP / "src" / "residency" / "engine.h").read_text()
    texts = [comment.text for comment in every]
    trailing = [comment.text for comment in every if comment.trails]
    backend = r"^\s*#.*INNKEEPER_WITH_CUDA"
    return {
        "lines of engine.h": lambda: len(engine.splitlines()),
        "declarations of Engine": lambda: declarations(engine, "Engine"),
        "declarations of the largest class in src/residency": lambda: largest_class("src/residency"),
        "INNKEEPER_WITH_CUDA in source": lambda: sum(
            len(re.findall(backend, path.read_text(), re.MULTILINE)) for path in files(".h", ".cc")
        ),
        "files of Python in circles of imports": python_circles,
        "pronouns without a noun per 1,000 words of comments": lambda: per_thousand(PRONOUNS, texts),
        '"what" without a noun per 1,000 words of comments': lambda: per_thousand(LONE_WHAT, texts),
        "trailing comments that are fragments, per cent": lambda: round(
            100 * sum(FRAGMENT.match(text) is not None for text in trailing) / len(trailing), 1
        ),
        "lines of README.md": lambda: len((TOP / "README.md").read_text().splitlines()),
        "words of ARCHITECTURE.md": lambda: len((TOP / "ARCHITECTURE.md").read_text().split()),
    }


def file_ends() -> set[str]:
    """Every file of the repository, as each end of its path: c.h, b/c.h, a/b/c.h."""
    ends: set[str] = set()
    for path in files(""):
        parts = path.relative_to(TOP).parts
        ends |= {"/".join(parts[i:]) for i in range(len(parts))}
    return ends | {"tools/check_words.py", "check_words.py"}


def missing_files(every: list[Comment]) -> dict[str, Path]:
    """Files that comments and documents name and that do not exist, each with the first file to name it."""
    texts = [(comment.path, comment.text) for comment in every]
    texts += [(path, path.read_text()) for path in files(".md", ".1") if path.name != "CHANGELOG.md"]
    for path in files(".txt", ".sh", ".cmake"):
        notes = [line for line in path.read_text().splitlines() if line.lstrip().startswith("#")]
        texts.append((path, "\n".join(notes)))
    ends = file_ends()
    missing: dict[str, Path] = {}
    for path, text in texts:
        for name in NAMED_FILE.findall(text):
            if name not in ends:
                missing.setdefault(name, path)
    return missing


def counted(limit: Limit, prose: list[str], sources: list[str]) -> int:
    """How often a word stands in comments and documents, or an identifier in code."""
    if limit.kind == "name":
        pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{limit.text})(?![A-Za-z0-9_])")
        return sum(len(pattern.findall(text)) for text in sources)
    pattern = re.compile(rf"\b(?:{limit.text})\b", re.IGNORECASE)
    return sum(len(pattern.findall(text)) for text in prose)


def lower(found: dict[Limit, int | float]) -> None:
    """Writes the figures that are below their ceilings into the list."""
    lines = []
    for line in LIST.read_text().splitlines():
        for limit, figure in found.items():
            if line == limit.line() and figure < limit.most:
                line = limit._replace(most=figure).line()
        lines.append(line)
    LIST.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Runs the check; returns the exit status."""
    show = "--measure" in sys.argv[1:]
    every = list(comments())
    prose = [comment.text for comment in every]
    prose += [path.read_text() for path in files(".md", ".1") if path.name != "CHANGELOG.md"]
    sources = [path.read_text() for path in files(".h", ".cc", ".py", ".txt")]
    measured = measures(every)
    missing = missing_files(every)
    found: dict[Limit, int | float] = {}
    for limit in limits():
        if limit.kind == "measure":
            found[limit] = measured[limit.text]()
        elif limit.kind == "file":
            known = {name for name in missing if re.fullmatch(limit.text, name)}
            found[limit] = len(known)
            missing = {name: path for name, path in missing.items() if name not in known}
        else:
            found[limit] = counted(limit, prose, sources)
    if "--lower" in sys.argv[1:]:
        lower(found)
        return 0
    wrong = [f"{path.relative_to(TOP)} names {name}, which is not there" for name, path in missing.items()]
    for limit, figure in found.items():
        if show:
            print(f"{figure:>8} of {limit.most:<8} {limit.kind} {limit.text}")
        if figure > limit.most:
            wrong.append(f"{limit.text}: {figure}, at most {limit.most} ({limit.why})")
        elif figure < limit.most and limit.kind != "measure":
            wrong.append(f"{limit.text}: {figure} are left of {limit.most}; run tools/check_words.py --lower")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if not wrong and not show:
        print(f"words: {len(found)} lines hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

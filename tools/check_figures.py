"""Holds the figures in the documents to the runs that they come from.

A sentence states the origin of its section's figures:

    Measured at 0123abc by `build/wheel/bench/lease_bench`, of `src/lease` and `src/base`.

The commit is one of this history, the command one of this tree, and `of` names the code that the figures are
about. They are stale once more than a tenth of that code has changed, the command's own source included;
commits in .git-blame-ignore-revs do not count. Then the sentence must say "Measured at 0123abc (stale) by",
until the command runs again. So a reader never takes an old figure for a new one, and an author of code adds
a word instead of running a benchmark. With --fresh, for releases, a stale figure is an error.

A number with a unit of measured time or speed (µs, ms, 1.5 s, GiB/s, "a second") needs such a sentence in its
section. Tests compare shown output of shown code, and of the screens in docs/screens, instead. In a table
with the columns `command` and `commit` each row names its own run: that is history, never stale.

Usage: check_figures.py [--fresh] [ROOT]. Without history (no git, or a shallow clone that lacks a commit)
the checks that need it are left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STALE = 0.1  # changed share of the lines of code
MARK = re.compile(r"[Mm]easured at (\w+)( \(stale\))? by `([^`]+)`, of ((?:`[^`]+`(?:, | and )?)+)")
SPAN = re.compile(r"`[^`]*`")
BEGUN = re.compile(r"\b[Mm]easured at\b")
UNIT = r"(?:ns|µs|us|ms|[KMGT]i?B/s)"
FIGURE = re.compile(
    rf"\d\s?{UNIT}\b|\d\.\d+\s(?:s|seconds|minutes|hours)\b|\d\s(?:[a-z]+\s)?a second\b|^\|\s*{UNIT}\s*\|"
)
NO_CODE = re.compile(r"^\s*(//|#|\*|/\*|$)")
SHA = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Line:
    """A line of a document; `fence` is the language of the code block that it stands in, or None."""

    number: int
    text: str
    fence: str | None
    shown: bool  # output of the code block before it, or messages that a test compares


@dataclass
class Section:
    """The text below one heading."""

    line: int
    lines: list[Line]

    def prose(self) -> str:
        """All text outside of code blocks, without line ends."""
        return " ".join(" ".join(line.text for line in self.lines if line.fence is None).split())


def sections(text: str) -> list[Section]:
    """The sections of a document in Markdown, the one before the first heading included."""
    found = [Section(1, [])]
    fence: str | None = None
    before = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            if fence is None:
                fence = line[3:].strip()
                shown = fence == "errors" or (before == "python" and fence == "text")
            else:
                before, fence = fence, None
            continue
        if fence is None and line.strip():
            before = ""
            if line.startswith("#"):
                found.append(Section(number, []))
        found[-1].lines.append(Line(number, line, fence, fence is not None and shown))
    return found


class History:
    """Git's history of the tree at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.there = self._run("rev-parse", "--git-dir") is not None
        said = self._run("rev-parse", "--is-shallow-repository")
        self.shallow = said is not None and said.strip() == "true"

    def _run(self, *arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(self._root), *arguments], capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    def has(self, commit: str) -> bool:
        """Whether the commit is in the object store."""
        return self._run("cat-file", "-e", f"{commit}^{{commit}}") is not None

    def landed(self, commit: str) -> bool:
        """Whether the commit is HEAD or before it."""
        return self._run("merge-base", "--is-ancestor", commit, "HEAD") is not None

    def _changed(self, *between: str, paths: list[str]) -> tuple[int, int]:
        """Lines of code that were added and removed, without comments."""
        changes = self._run("diff", "-U0", "-w", "--no-color", "--no-ext-diff", *between, "--", *paths)
        added = removed = 0
        for line in (changes or "").splitlines():
            if line.startswith(("+++", "---")) or NO_CODE.match(line[1:]):
                continue
            added += line.startswith("+")
            removed += line.startswith("-")
        return added, removed

    def _renames_since(self, commit: str) -> list[str]:
        """Commits that only rename, as .git-blame-ignore-revs names them."""
        listed = self._root / ".git-blame-ignore-revs"
        named = re.findall(r"^[0-9a-f]{40}$", listed.read_text(), re.MULTILINE) if listed.is_file() else []
        since = set((self._run("rev-list", f"{commit}..HEAD") or "").split())
        return [name for name in named if name in since]

    def change_since(self, commit: str, paths: list[str]) -> float:
        """Which part of the code below `paths` has been changed since: lines of code, without comments.

        Commits that only rename do not count.
        """
        old = self._run("grep", "-hvE", NO_CODE.pattern, commit, "--", *paths) or ""
        added, removed = self._changed(commit, paths=paths)
        for rename in self._renames_since(commit):
            more, less = self._changed(f"{rename}^", rename, paths=paths)
            added, removed = max(0, added - more), max(0, removed - less)
        return max(added, removed) / max(1, len(old.splitlines()))


def source_of(command: str, root: Path) -> str | None:
    """The file of this tree that a command runs, the Makefile for `make TARGET`; None if there is none.

    It is the first word that is a file or is built from one, as in `perf stat build/wheel/src/cli/innkeeper`.
    """
    words = shlex.split(command)
    if words[:1] == ["make"]:
        targets = re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.MULTILINE)
        return "Makefile" if len(words) > 1 and words[1] in targets else None
    return next((source for word in words if (source := _source(word, root)) is not None), None)


def _source(word: str, root: Path) -> str | None:
    built = re.fullmatch(r"build/([\w-]+)/(bench|tests|src/cli)/(\w+)", word)
    if built is None:
        return word if (root / word).is_file() else None
    preset, directory, name = built.groups()
    presets = json.loads((root / "CMakePresets.json").read_text())["configurePresets"]
    if preset not in {"wheel", *(row["name"] for row in presets)}:
        return None
    if directory == "tests":  # core's tests are one program
        source = "tests/CMakeLists.txt"
    else:
        source = "src/cli/main.cc" if directory == "src/cli" else f"{directory}/{name}.cc"
    return source if (root / source).is_file() else None


class Check:
    """Reads documents, and gathers their errors."""

    def __init__(self, root: Path, fresh: bool) -> None:
        self._root, self._fresh = root, fresh
        self._history = History(root)
        screens = [screen.read_text() for screen in root.glob("docs/screens/*.txt")]
        self._screens = {line.rstrip() for screen in screens for line in screen.splitlines()}
        self.wrong: list[str] = []
        self.notes: list[str] = []
        if not self._history.there:
            self.notes.append("no git here: the commits of figures are not looked at")

    def document(self, path: Path) -> None:
        """Looks at one document."""
        name = path.relative_to(self._root).as_posix()
        for section in sections(path.read_text(encoding="utf-8")):
            where = f"{name}:{section.line}"
            prose = section.prose()
            marks = MARK.findall(prose)
            if len(BEGUN.findall(SPAN.sub("", prose))) != len(marks):
                self.wrong.append(f'{where}: write "Measured at COMMIT by `COMMAND`, of `PATH`."')
            for commit, stale, command, paths in marks:
                self._mark(where, commit, command, re.findall("`([^`]+)`", paths), bool(stale))
            self._rows(where, section)
            if not marks:
                self._unmarked(name, section)

    def _mark(self, where: str, commit: str, command: str, paths: list[str], stale: bool) -> None:
        source = source_of(command, self._root)
        if source is None:
            self.wrong.append(f"{where}: there is no such command here: {command}")
        missing = [path for path in paths if not (self._root / path).exists()]
        self.wrong += [f"{where}: there is no {path}" for path in missing]
        if not self._commit(where, commit) or source is None or missing:
            return
        change = self._history.change_since(commit, [*paths, source])
        about = f"{' and '.join(paths)} changed by {change:.0%} since {commit}"
        if change > STALE and not stale:
            self.wrong.append(f'{where}: stale, {about}: measure again, or write "at {commit} (stale)"')
        elif change <= STALE and stale:
            self.wrong.append(f'{where}: not stale, {about}: take "(stale)" out')
        elif stale and self._fresh:
            self.wrong.append(f"{where}: stale, {about}: measure again")

    def _commit(self, where: str, commit: str) -> bool:
        """Whether the commit can be looked into; an error if it should, and cannot."""
        if not SHA.fullmatch(commit):
            self.wrong.append(f"{where}: {commit} is no commit")
        elif self._history.there and self._history.has(commit):
            if self._history.landed(commit) or self._history.shallow:
                return True
            self.wrong.append(f"{where}: {commit} is not in the history of this tree")
        elif self._history.shallow:
            self.notes.append(f"{where}: this clone does not reach back to {commit}, which is not looked at")
        elif self._history.there:
            self.wrong.append(f"{where}: there is no commit {commit}")
        return False

    def _rows(self, where: str, section: Section) -> None:
        """Rows that name their command and commit."""
        columns: list[str] = []
        for line in section.lines:
            cells = [cell.strip() for cell in line.text.strip().strip("|").split("|")]
            if not line.text.startswith("|"):
                columns = []
            elif not columns:
                columns = cells
            elif {"command", "commit"} <= set(columns) and not cells[0].startswith("---"):
                row = dict(zip(columns, cells, strict=False))
                command = re.search("`([^`]+)`", row["command"])
                if command is None or source_of(command.group(1), self._root) is None:
                    self.wrong.append(f"{where}: there is no such command here: {row['command']}")
                self._commit(where, row["commit"])

    def _unmarked(self, name: str, section: Section) -> None:
        for line in self._claims(section):
            said = "a measured figure, and its section does not say by what it was measured"
            self.wrong.append(f"{name}:{line.number}: {said}: {line.text.strip()}")

    def _claims(self, section: Section) -> Iterator[Line]:
        for line in section.lines:
            text = line.text if line.fence is not None else SPAN.sub("", line.text)
            if FIGURE.search(text) and not line.shown and line.text.rstrip() not in self._screens:
                yield line


def main() -> int:
    """Returns the exit status."""
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--fresh", action="store_true", help="a figure that says it is stale is an error, too")
    p.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    args = p.parse_args()
    check = Check(args.root, args.fresh)
    for path in sorted([*args.root.glob("*.md"), *args.root.glob("docs/**/*.md")]):
        check.document(path)
    for note in check.notes:
        print(note)
    for wrong in check.wrong:
        print(wrong)
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""The table of mutexes in docs/internals/locks.md."""

from __future__ import annotations

import re
from collections import Counter

from repository import ROOT

SRC = ROOT / "src"
WRAPPER = "base/thread_annotations.h"  # The class Mutex itself.
# A member or a variable, or a leaked one behind a reference; no reference to another declaration.
DECLARATION = re.compile(
    r"^[ \t]*(?:(?:mutable|static|inline|constinit|thread_local) )*"
    r"(?:(?:std::\w*mutex|Mutex) (\w+)(?:;|\{)|(?:Mutex|auto)& (\w+) = \*new Mutex;)",
    re.MULTILINE,
)
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+\.(?:h|cc))` \|", re.MULTILINE)


def declared() -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for path in SRC.rglob("*"):
        file = path.relative_to(SRC).as_posix()
        if path.suffix in (".h", ".cc") and file != WRAPPER:
            found.update((file, plain or leaked) for plain, leaked in DECLARATION.findall(path.read_text()))
    return found


def listed() -> Counter[tuple[str, str]]:
    rows = ROW.findall((ROOT / "docs/internals/locks.md").read_text())
    return Counter((file, name.split("::")[-1]) for name, file in rows)


def test_the_page_lists_each_mutex_of_the_sources() -> None:
    in_sources, in_page = declared(), listed()
    assert len(in_sources) > 30
    assert in_sources - in_page == Counter(), "a mutex is missing from docs/internals/locks.md"
    assert in_page - in_sources == Counter(), "docs/internals/locks.md lists a mutex that is gone"

"""The files that hosts of repositories, package indexes and citations read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import innkeeper
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_one_target_of_the_makefile(path: Path) -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    workflow = read(path)
    assert workflow["name"] == path.stem and workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    make, target = command.split()
    assert make == "make" and target == path.stem and target in targets[1].split()
    assert 0 < job["timeout-minutes"] <= 360, "no runner that is lent works for longer"


def test_each_tier_has_a_workflow() -> None:
    assert {path.stem for path in WORKFLOWS} == {"docs", "lint", "nightly", "test", "verify"}


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem
)
def test_a_form_asks_for_something(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_each_quick_part_of_lint_is_a_hook() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local", "no hook is fetched"
    entries = {hook["entry"] for hook in repository["hooks"]}
    parts = re.search(r"^  *for part in (.*); do$", (ROOT / "tools" / "lint.sh").read_text(), re.MULTILINE)
    assert parts is not None
    assert entries == {f"tools/lint.sh {part}" for part in parts[1].split() if part != "tidy"}


def test_one_version() -> None:
    project = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None and project[1] == innkeeper.__version__
    assert read(ROOT / "CITATION.cff")["version"] == project[1]
    assert f"## {project[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_an_installed_header_says_the_version() -> None:
    installed = Path(innkeeper.__file__).parent / "include" / "innkeeper" / "version.h"
    parts = re.findall(r"#define INNKEEPER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", installed.read_text())
    assert ".".join(parts) == innkeeper.__version__

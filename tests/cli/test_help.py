"""Help, man page and completion name the same commands, options and exit codes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from innkeeper_program import Command, Machine, run_command
from repository import ROOT

MAN = ROOT / "docs" / "innkeeper.1"
REQUEST = {"-n", "--gpus", "--mem", "--by", "--share", "--exclusive", "--wait"}
COMMON = {"-h", "--help", "--version"}


def help_of(machine: Machine, *path: str) -> str:
    return machine.ok(*path, "--help")


def commands_in(text: str) -> list[str]:
    found = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", found.group(1), re.MULTILINE) if found else []


def options_in(text: str) -> set[str]:
    found = re.search(r"^Options:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert found is not None, text
    lines = re.findall(r"^  (-\S+)", found.group(1), re.MULTILINE)
    return {name for line in lines for name in line.split(",")}


def everything(machine: Machine) -> dict[tuple[str, ...], set[str]]:
    """Each command that ends a path, with its options."""
    found: dict[tuple[str, ...], set[str]] = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        path = waiting.pop()
        text = help_of(machine, *path)
        below = commands_in(text)
        waiting += [(*path, name) for name in below]
        if not below:
            found[path] = options_in(text)
    return found


def tags_in(section: str) -> set[str]:
    tags = re.findall(r"^\.TP\n\.BR? (.*)$", section, re.MULTILINE)
    return {option for tag in tags for option in re.findall(r"-{1,2}[\w-]+", tag)}


def man_sections() -> dict[tuple[str, ...], set[str]]:
    """The options that the man page gives each command."""
    text = MAN.read_text().replace("\\-", "-")
    sections: dict[tuple[str, ...], set[str]] = {}
    body = text[text.index(".SH COMMANDS") : text.index(".SH OPTIONS")]
    for part in body.split("\n.SS ")[1:]:
        title, _, rest = part.partition("\n")
        name = tuple(word for word in title.split() if word.islower())
        options = tags_in(rest)
        if "Takes a request" in rest:
            options |= REQUEST
        if "Takes the options of a job" in rest:
            options |= (REQUEST - {"--wait"}) | tags_in(
                text[text.index(".SH JOBS") : text.index(".SH COMMANDS")]
            )
        sections[name] = options
    return sections


def test_the_man_page_has_the_commands_and_options_of_the_program(machine: Machine):
    program = {path: options - {"-h", "--help"} for path, options in everything(machine).items()}
    assert man_sections() == program
    shared = MAN.read_text().replace("\\-", "-")
    requests = shared[shared.index(".SH REQUESTS") : shared.index(".SH COMMANDS")]
    assert set(re.findall(r"^\.BR? .*?(-n|--[a-z]+)", requests, re.MULTILINE)) | {"--gpus"} >= REQUEST - {
        "-n"
    }
    assert options_in(help_of(machine)) == COMMON


def test_exit_codes_are_the_same_in_help_man_page_and_code(machine: Machine):
    text = help_of(machine)
    in_help = dict(re.findall(r"^  (\d+) +(.*)$", text[text.index("Exit codes:") :], re.MULTILINE))
    page = MAN.read_text()
    section = page[page.index(".SH EXIT STATUS") : page.index(".SH ENVIRONMENT")]
    in_page = {
        number: words[0].lower() + words[1:] for number, words in re.findall(r"\.B (\d+)\n(.*)\.\n", section)
    }
    assert in_help == in_page and len(in_help) > 10
    source = (ROOT / "src/cli/exit_codes.h").read_text()
    assert set(re.findall(r"k\w+ = (\d+)", source)) == set(in_help)


def test_the_man_page_is_well_formed(command: Command):
    for tool in (["mandoc", "-T", "lint", "-W", "warning"], ["man", "--warnings", "-l", "-Tutf8"]):
        if shutil.which(tool[0]) is None:
            continue
        done = command(*tool, MAN)
        said = [
            line for line in (done.stdout + done.stderr).splitlines() if "WARNING" in line or "ERROR" in line
        ]
        assert [line for line in said if "missing date" not in line] == []


@pytest.mark.parametrize("path", [(), ("pick",), ("run",), ("lease",), ("lease", "hold"), ("status",)])
def test_help_fits_a_terminal(machine: Machine, path: tuple[str, ...]):
    for line in help_of(machine, *path).splitlines():
        assert len(line) <= 120, line


def test_version(machine: Machine):
    assert re.fullmatch(r"innkeeper \d+\.\d+\.\d+\n", machine.ok("--version"))


def completed(machine: Machine, tmp_path: Path, *words: str) -> set[str]:
    """Words that bash offers as the last word."""
    script = tmp_path / "completion.bash"
    script.write_text(machine.ok("completion", "bash"))
    line = f"""
        source {script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
        _innkeeper; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return set(run_command("bash", "-uc", line, check=True).stdout.split())


def test_bash_completes_commands_options_and_values(machine: Machine, tmp_path: Path):
    assert completed(machine, tmp_path, "innkeeper", "st") == {"status"}
    assert completed(machine, tmp_path, "innkeeper", "lease", "") >= {"list", "hold", "release"}
    assert completed(machine, tmp_path, "innkeeper", "run", "--by", "") == {
        "free",
        "ratio",
        "power",
        "utilization",
    }
    for path, options in everything(machine).items():
        assert completed(machine, tmp_path, "innkeeper", *path, "-") >= options, path
    assert "bash" in completed(machine, tmp_path, "innkeeper", "run", "--mem", "1G", "--", "bas")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_good_for_their_shells(machine: Machine, tmp_path: Path, shell: str):
    text = machine.ok("completion", shell)
    for path in everything(machine):
        assert path[-1] in text
    if shutil.which(shell) is not None:
        script = tmp_path / "script"
        script.write_text(text)
        done = run_command(shell, "-n", script)
        assert (done.returncode, done.stderr) == (0, "")

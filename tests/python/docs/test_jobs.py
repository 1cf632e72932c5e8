"""The tools that run tests: the jobs that a change reaches, the order of jobs, the progress of a build."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import is_running, wait_until
from repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import check_changed
import count_tests
import jobs
import progress

Commits = dict[str, int]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    """Number of later commits by commit, in place of git's."""
    known: Commits = {}
    monkeypatch.setattr(jobs, "commits_since", lambda commit: known.get(str(commit), sys.maxsize))
    return known


def test_jobs_that_ran_longest_ago_come_first(commits: Commits) -> None:
    commits |= {"new": 1, "old": 9}
    noted = {job.name: {"commit": "new"} for job in jobs.VERIFY}
    noted["fuzz"] = {"commit": "old"}
    del noted["cuda"]
    order = [job.name for job in jobs.longest_ago_first(0, noted)]
    assert order[:2] == ["cuda", "fuzz"] and sorted(order) == sorted(job.name for job in jobs.VERIFY)


def test_jobs_that_failed_come_before_all_others(commits: Commits) -> None:
    """Otherwise a second run of the same commit would have no time for them, and pass."""
    commits |= {"new": 0, "old": 9}
    noted = {job.name: {"commit": "old", "result": "passed"} for job in jobs.VERIFY}
    noted["bench"] = {"commit": "new", "result": "failed"}
    assert jobs.longest_ago_first(0, noted)[0].name == "bench"


def test_a_failed_run_says_nothing_of_how_long_a_job_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RECORD", tmp_path / "verify.json")
    monkeypatch.setattr(jobs, "git", lambda *words: "0123abc")
    job = jobs.VERIFY[0]
    for result, seconds in (("passed", 90.0), ("failed", 3.0), ("not run", 5.0)):
        jobs.record(jobs.Outcome(job, result, seconds))
    noted = jobs.recorded()
    assert noted[job.name] == {"commit": "0123abc", "seconds": 90.0, "result": "failed"}
    assert jobs.minutes_of(job, noted) == 1.5


@pytest.mark.parametrize(
    "garbage", ['{"tidy": 5}', '{"tidy": null}', "[]", '{"tidy": {"seconds": 1e300}}', "{"]
)
def test_garbage_in_the_record_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: Commits, garbage: str
) -> None:
    monkeypatch.setattr(jobs, "RECORD", tmp_path / "verify.json")
    jobs.RECORD.write_text(garbage)
    noted = jobs.recorded()
    order = jobs.longest_ago_first(0, noted)
    assert [jobs.minutes_of(job, noted) for job in order] == [job.minutes for job in order]


def test_every_job_runs_in_at_least_every_third_run_of_ci() -> None:
    """In fresh clones, in addition to a `make test` of 25 minutes: 57 in all."""
    for start in range(3):
        ran: set[str] = set()
        for number in range(start, start + 3):
            left = 57 - 25.0
            for job in jobs.longest_ago_first(number, {}):
                if job.minutes <= left:
                    left -= job.minutes
                    ran.add(job.name)
        assert ran == {job.name for job in jobs.VERIFY}


def test_a_job_takes_as_long_as_it_took() -> None:
    job = jobs.VERIFY[0]
    assert jobs.minutes_of(job, {}) == job.minutes
    assert jobs.minutes_of(job, {job.name: {"seconds": 90.0}}) == 1.5


def test_an_unknown_job_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no such job: nonsense; there are tidy, commands"):
        jobs.chosen(jobs.VERIFY, ["tsan", "nonsense"])


@pytest.mark.parametrize(
    ("command", "result", "why"),
    [
        ("echo fine", "passed", ""),
        ("echo wrong; exit 3", "failed", "exit status 3"),
        ("echo 'cuda tests skipped: no index'", "not run", "cuda tests skipped: no index"),
    ],
)
def test_a_job_passes_fails_or_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: object, command: str, result: str, why: str
) -> None:
    monkeypatch.setattr(jobs, "REPORTS", tmp_path)
    monkeypatch.setattr(jobs, "TOP", tmp_path)
    outcome = jobs.run(jobs.Job("a", "what", command, 1))
    assert (outcome.result, outcome.why[: len(why)]) == (result, why)


def test_a_job_that_takes_too_long_is_stopped_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: object
) -> None:
    monkeypatch.setattr(jobs, "REPORTS", tmp_path)
    monkeypatch.setattr(jobs, "TOP", tmp_path)
    outcome = jobs.run(jobs.Job("a", "what", "sleep 600 & echo $! >child; wait", 1), limit_s=1)
    assert outcome.result == "not run" and "stopped" in outcome.why
    monkeypatch.setattr(jobs, "LEAST_LIMIT_S", 1)
    hangs = jobs.run(jobs.Job("a", "what", "sleep 600 & echo $! >child; wait", 0), limit_s=100)
    assert hangs.result == "failed" and "took over" in hangs.why
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))  # A killed process ends a little later.


def test_nightly_jobs_write_their_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "nightly.md"
    page.write_text((ROOT / "docs/nightly.md").read_text())
    monkeypatch.setattr(jobs, "NIGHTLY_PAGE", page)
    monkeypatch.setattr(jobs, "git", lambda *words: "0123abc")
    job = next(job for job in jobs.NIGHTLY if job.name == "soak")
    jobs.note_nightly(jobs.Outcome(job, "passed", 3000.0))
    assert re.search(
        r"^\| soak \| .* \| \d{4}-\d\d-\d\d \| 0123abc \| passed \| 50 \|$", page.read_text(), re.M
    )


def test_every_nightly_job_has_a_row() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| (.*?) \|", (ROOT / "docs/nightly.md").read_text(), re.M)
    assert {(job.name, job.what) for job in jobs.NIGHTLY} == set(rows) - {("job", "what")}


def test_progress_is_one_line_and_the_log_has_all() -> None:
    log, out = io.StringIO(), io.StringIO()
    lines = ["configuring\n", "[1/3] a\n", "  [2/3] b\n", "warning: c\n", "[3/3] d\n"]
    progress.follow(lines, log, "it", out)
    assert log.getvalue() == "".join(lines)
    assert re.fullmatch(r"Compiled it: 3 steps in \d+ s\n", out.getvalue())


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [(120, 300, 80.0, "about 2 min left"), (1, 2, 30.0, "about 30 s left"), (3, 3, 9.0, "about 1 s left")],
)
def test_progress_says_how_long_it_takes_yet(done: int, total: int, seconds: float, words: str) -> None:
    assert progress.left(done, total, seconds) == words


@pytest.mark.parametrize(("command", "status"), [("echo '[1/1] a'", 0), ("echo why; exit 7", 7)])
def test_a_build_that_fails_shows_the_end_of_its_log(
    run_python, tmp_path: Path, command: str, status: int
) -> None:
    done = run_python("tools/progress.py", str(tmp_path / "log"), "it", "bash", "-c", command)
    assert done.returncode == status
    assert ("why" in done.stdout) == (status != 0)


REPORT = """<testsuites><testsuite name="S">
<testcase name="a" status="run" classname="S"/>
<testcase name="b" status="run" classname="S"><failure message="x"/></testcase>
<testcase name="c" status="run" classname="S"><skipped message="x"/></testcase>
<testcase name="d" status="notrun" classname="S"/>
</testsuite></testsuites>"""


def test_tests_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    count_tests.main(["core", str(report), str(tmp_path / "none.xml")])
    count_tests.main(["--failed", str(report)])
    assert capsys.readouterr().out == "core: 3 tests, 1 passed, 1 failed, 1 skipped\nS.b\n"
    assert count_tests.main(["core", str(tmp_path / "none.xml")]) == 1, "no test at all is a failure"


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("exit 0", 1, "core: shard 1 of 2 ended in the middle of its tests"),
        ("kill -SEGV $$", 1, "core: shard 1 of 2 ended in the middle of its tests"),
        ('printf \'%s\' "$REPORT" >"${2#*xml:}"', 0, "core: 2 tests, 2 passed"),
    ],
)
def test_a_shard_without_a_report_ended_in_the_middle(
    run_program, tmp_path: Path, script: str, status: int, said: str
) -> None:
    """Even with status 0, like that of a test which calls exit()."""
    program = tmp_path / "tests_one"
    report = '<testsuites><testsuite name="S"><testcase name="a" status="run"/></testsuite></testsuites>'
    program.write_text(
        f'#!/bin/bash\nREPORT=\'{report}\'; set -- "$1" "$3"\n'
        f'if [ $GTEST_SHARD_INDEX = 0 ]; then printf \'%s\' "$REPORT" >"${{2#*xml:}}"; exit 0; fi\n{script}\n'
    )
    program.chmod(0o755)
    reports = os.path.relpath(tmp_path, ROOT)
    command = f"source tools/common.sh; source tools/run_tests.sh; JOBS=1 REPORTS={reports}"
    done = run_program("bash", "-c", f"{command}; run_core_tests {program} core", cwd=ROOT)
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ("src/cli/main.cc", []),
        ("src/residency/block/move.h", ["*ReplicaStates.*", "*Walk*"]),
        ("tests/unit/residency/state_test.cc", ["*ReplicaStates.*"]),
    ],
)
def test_core_tests_are_those_of_the_directories_above(changed: str, wanted: list[str]) -> None:
    found = check_changed.core_filter([changed]).split(":")
    for pattern in wanted:
        assert any(re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), each) for each in found), (
            found
        )
    assert "*Queue.*" not in found


def test_a_header_of_core_s_base_reaches_every_directory() -> None:
    found = set(check_changed.core_filter(["src/base/status.h"]).split(":"))
    directories = [
        path for path in (ROOT / "tests/unit").iterdir() if path.is_dir() and path.name != "support"
    ]
    assert {"*LeaseStorm.*", "*QueueStorm.*", "*ThreadsTest.*"} <= found
    for directory in directories:
        assert found & {f"*{suite}.*" for suite in check_changed.suites_of(directory.glob("*_test.cc"))}, (
            directory
        )


def test_every_directory_of_the_torch_layer_and_of_python_reaches_tests() -> None:
    for source in [*(ROOT / "src/torch").rglob("*.cc"), *(ROOT / "python/innkeeper").rglob("*.py")]:
        assert check_changed.python_tests([str(source.relative_to(ROOT))]), source
    for _, topics in check_changed.TOPICS:
        assert all((ROOT / "tests/python" / topic).is_dir() for topic in topics), topics


def test_a_changed_helper_reaches_the_tests_that_use_it() -> None:
    found = check_changed.python_tests(["tests/support/python/documents.py"])
    assert found and all("documents" in (ROOT / name).read_text() for name in found)
    assert check_changed.python_tests(["tests/cli/test_top.py"]) == ["tests/cli/test_top.py"]


def test_a_changed_helper_reaches_tests_through_other_helpers() -> None:
    """Through walk.py, which names it; and through tests/conftest.py, which applies to every test."""
    steps = check_changed.python_tests(["tests/support/python/walk_steps.py"])
    assert "tests/python/memory/test_walk.py" in steps
    for everywhere in ("tests/support/python/tiers.py", "tests/conftest.py"):
        assert check_changed.python_tests([everywhere]) == ["tests/cli", "tests/python"]
    assert check_changed.python_tests(["tests/python/conftest.py"]) == ["tests/python"]
    assert check_changed.python_tests(["tests/cuda/conftest.py"]) == []


@pytest.mark.parametrize(
    "changed", ["CMakeLists.txt", "src/queue/CMakeLists.txt", "tests/fake_nvml/script.cc", "pyproject.toml"]
)
def test_what_no_rule_knows_reaches_all(changed: str) -> None:
    assert check_changed.commands([changed, "docs/testing.md"]) == check_changed.EVERYTHING


def test_what_is_gone_reaches_what_used_it() -> None:
    """The tool neither reads a removed file nor passes it to ruff."""
    lines = check_changed.commands(["tests/support/python/gone_helper.py", "src/queue/gone.cc"])
    assert any("*QueueStorm.*" in line for line in lines) or lines == check_changed.EVERYTHING
    lines = check_changed.commands(["src/queue/gone.cc", "tests/cli/test_gone.py"])
    assert any("*QueueStorm.*" in line for line in lines) and any("tests/cli" in line for line in lines)
    assert not any("gone" in line for line in lines)


def test_every_helper_reaches_tests() -> None:
    for helper in (ROOT / "tests/support/python").glob("*.py"):
        assert check_changed.python_tests([str(helper.relative_to(ROOT))]), helper


@pytest.fixture
def checkout(tmp_path: Path, processes: object) -> Iterator[Path]:
    """A repository of one commit, in place of ours."""
    for command in ("init -q", "config user.email a@b", "config user.name a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    for name in ("kept", "changed", "gone"):
        (tmp_path / name).write_text("")
    subprocess.run("git add . && git commit -qm a", cwd=tmp_path, check=True, shell=True)
    yield tmp_path


def test_what_git_does_not_track_is_changed_too(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "changed").write_text("x")
    (checkout / "gone").unlink()
    (checkout / "new").write_text("")
    monkeypatch.setattr(check_changed, "TOP", checkout)
    assert check_changed.changed_files("HEAD") == ["changed", "gone", "new"]

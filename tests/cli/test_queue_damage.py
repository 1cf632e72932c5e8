"""`innkeeper queue` on a database that lost a page: readable rows stay, and the loss is reported."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from innkeeper_program import Jobs, wait_until
from queue_damage import PAGE, SAID, checkpoint, filled, forget_damage, listed, put_back
from small_disk import fill, small_disk

__all__ = ["filled", "small_disk"]


def damage(file: Path, page: int, what: bytes) -> None:
    """Writes over a page, counted from 1."""
    with file.open("r+b") as open_file:
        open_file.seek((page - 1) * PAGE)
        open_file.write((what * PAGE)[:PAGE])


def pages_of(jobs: Jobs, table: str) -> list[int]:
    """Numbers of the leaf pages of a table."""
    with jobs.database() as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name=?", (table,)).fetchone()
    data = (jobs.directory / "queue.db").read_bytes()
    leaves, inner = [], [root]
    while inner:
        page = inner.pop()
        at = (page - 1) * PAGE
        if data[at] in (0x0D, 0x0A):
            leaves.append(page)
            continue
        assert data[at] in (0x05, 0x02)
        cells = int.from_bytes(data[at + 3 : at + 5], "big")
        inner.append(int.from_bytes(data[at + 8 : at + 12], "big"))
        for cell in range(cells):
            pointer = int.from_bytes(data[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
            inner.append(int.from_bytes(data[at + pointer : at + pointer + 4], "big"))
    return leaves


def test_a_lost_page_of_jobs(filled: Jobs) -> None:
    file = checkpoint(filled)
    before, said = listed(filled)
    assert len(before) == 340 and said == ""
    file = checkpoint(filled)
    for page, what in zip(pages_of(filled, "jobs")[:2], (b"\0", b"\xa5\x5a\x01"), strict=True):
        damage(file, page, what)
    after, said = listed(filled)
    found = re.search(SAID, said)
    assert found, said
    assert int(found[1]) == len(before) - len(after) > 10
    assert Path(found[2]).exists()
    for number in range(1, 41):  # A job with output is known.
        assert filled("log", str(number)) == f"said {number}\n"
        assert after[number] in ("done", "interrupted")
    assert all(after[job] == before[job] for job in after if job > 40 and after[job] != "failed")
    # The queue goes on: numbers are not used again, and waiting jobs run.
    added = filled.add("-n0", "--", "echo", "new")
    assert int(added) == 341
    filled("resume")
    assert filled.wait(added) == 0
    still = listed(filled)[1]
    assert found[2] in still
    Path(found[2]).unlink()
    assert listed(filled)[1] == ""


def test_any_page_but_the_first(filled: Jobs) -> None:
    """For any lost page lists answer, jobs are added, and output can be read."""
    file = checkpoint(filled)
    kept = file.read_bytes()
    before = listed(filled)[0]
    for page in range(2, len(kept) // PAGE + 1, 2):
        put_back(filled, kept)
        damage(file, page, os.urandom(7) if page % 4 else b"\0")
        added = filled.machine.run("queue", "add", "-n0", "--", "true")
        assert added.returncode == 0, (page, added.stderr)
        assert added.stdout == "341\n", page
        after, said = listed(filled)
        assert set(range(1, 41)) <= set(after) and after[341] == "queued", (page, said)
        assert len(after) == 341 or re.search(SAID, said), page
        assert filled.machine.run("queue", "log", "7").stdout == "said 7\n"
        assert set(after) - {341} <= set(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["pause"],
        ["resume"],
        ["slots", "3"],
        ["slots"],
        ["cancel", "41-339"],
        ["cancel", "41"],
        ["pause", "339.0", "300"],
        ["wait", "1-40"],
        ["prune", "--keep=3"],
        ["prune", "--auto", "--keep=50"],
        ["prune", "--auto"],
    ],
    ids=" ".join,
)
def test_each_command_mends_it(filled: Jobs, words: list[str]) -> None:
    """Or does not read the lost rows; no command fails by the loss, except for jobs that are lost."""
    file = checkpoint(filled)
    kept = file.read_bytes()
    for table in ("jobs", "settings", "attempts"):
        damage(file, pages_of(filled, table)[-1], b"\xa5\x5a\x01")
        done = filled.machine.run("queue", *words)
        assert done.returncode == 0 or "there is no job" in done.stderr, (table, done.stderr)
        put_back(filled, kept)


def test_a_running_job_goes_on(jobs: Jobs) -> None:
    jobs("slots", "1")
    job = jobs.add("-n0", "--", "sh", "-c", f"echo begun; {jobs.until_go}; exit 3")
    wait_until(lambda: jobs.machine.run("queue", "log", job).stdout == "begun\n")
    file = jobs.directory / "queue.db"
    with jobs.database() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(file, pages_of(jobs, "jobs")[0], b"\0")
    for runner in (jobs.runner(),):
        assert runner is not None
        os.kill(runner, 9)
    wait_until(lambda: "mended" in listed(jobs)[1])
    assert listed(jobs)[0] == {int(job): "running"}
    jobs.go.touch()
    assert jobs.wait(job) == 1
    assert listed(jobs)[0] == {int(job): "failed"} and jobs.log(job) == "begun\n"
    forget_damage(jobs)


def test_where_it_cannot_be_mended_that_is_said(filled: Jobs) -> None:
    file = checkpoint(filled)
    damage(file, pages_of(filled, "jobs")[0], b"\0")
    shutil.copy(file, filled.machine.directory / "as it was")
    (filled.directory / "mend.lock").unlink(missing_ok=True)
    (filled.directory / "mend.lock").mkdir()
    done = filled.machine.run("queue", "list", "--all")
    (filled.directory / "mend.lock").rmdir()
    assert done.returncode != 0 and "mend.lock" in done.stderr, done
    assert file.read_bytes() == (filled.machine.directory / "as it was").read_bytes()
    assert re.search(SAID, listed(filled)[1])


def test_an_interrupted_mending_is_restarted(filled: Jobs) -> None:
    file = checkpoint(filled)
    damage(file, pages_of(filled, "jobs")[0], b"\0")
    (filled.directory / "queue.db.mended").write_bytes(os.urandom(10_000))
    assert re.search(SAID, listed(filled)[1])
    assert not (filled.directory / "queue.db.mended").exists()


def test_on_a_full_disk_it_is_mended_later(jobs: Jobs, small_disk: Path) -> None:
    jobs.put_on(small_disk)
    jobs("pause")
    jobs.add("--gpus=0", "--array=1-300", "--", "echo", "waits")
    file = checkpoint(jobs)
    damage(file, pages_of(jobs, "jobs")[0], b"x")
    was = file.read_bytes()
    filler = fill(small_disk)
    for words in (["list", "--all"], ["add", "--gpus=0", "--", "true"]):
        done = jobs.machine.run("queue", *words)
        assert done.returncode == 73 and "0 B free of 1.0 MiB" in done.stderr, done
    assert file.read_bytes() == was, "it is as it was"
    assert list(jobs.directory.glob("queue.db.*")) == []
    filler.unlink()
    states, said = listed(jobs)
    found = re.search(SAID, said)
    assert found is not None and len(states) == 300 - int(found[1]) > 0, said
    forget_damage(jobs)

"""`innkeeper queue` on a database that was cut off, emptied or removed: jobs with output are still known."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from innkeeper_program import Jobs, wait_until
from queue_damage import PAGE, SAID, checkpoint, filled, forget_damage, listed, put_back

__all__ = ["filled"]

BEGUN_ANEW = "the queue's database could not be read, and a new one was made"


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut_in_the_first_page(file: Path) -> None:
    os.truncate(file, 700)


def lose_the_first_page(file: Path) -> None:
    with file.open("r+b") as open_file:
        open_file.write(b"\xa5\x5a" * (PAGE // 2))


LOSSES = [remove, empty, cut_in_the_first_page, lose_the_first_page]


def test_cut_off_anywhere(filled: Jobs) -> None:
    file = checkpoint(filled)
    kept = file.read_bytes()
    pages = len(kept) // PAGE
    before = listed(filled)[0]
    for size in [pages * PAGE - 1, *(page * PAGE + page % 3 for page in range(1, pages, 3))]:
        put_back(filled, kept[:size])
        # The record that the queue was paused may have been lost.
        for output in filled.directory.glob("output/34?.*.log"):
            output.unlink()
        added = filled.machine.run("queue", "add", "-n0", "--", "true")
        assert added.returncode == 0, (size, added.stderr)
        assert int(added.stdout) in range(41, 342), size
        after, said = listed(filled)
        assert set(range(1, 41)) <= set(after), (size, said)
        assert len(after) == 341 or SAID.search(said) or BEGUN_ANEW in said, (size, said)
        assert filled.machine.run("queue", "log", "7").stdout == "said 7\n"
        assert set(after) - {int(added.stdout)} <= set(before)
        if size > pages * PAGE * 3 // 4:
            assert len(after) > 100, "what was not cut off is kept"


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_nothing_can_be_read(filled: Jobs, lose) -> None:
    """Numbers whose output is there are not given again, so that no output is written over."""
    file = checkpoint(filled)
    lose(file)
    states, said = listed(filled)
    assert states == dict.fromkeys(range(1, 41), "interrupted")
    assert BEGUN_ANEW in said and len(said.splitlines()) == 2, said
    assert len(listed(filled)[1].splitlines()) == 1
    assert filled("log", "7") == "said 7\n"
    added = filled.add("-n0", "--", "echo", "new")
    assert added == "41"
    assert filled.wait(added) == 0 and filled("log", "7") == "said 7\n"
    kept = list(filled.directory.glob("queue.db.unreadable-*[0-9]"))
    assert len(kept) == 1 and str(kept[0]) in said
    forget_damage(filled)
    assert listed(filled)[1] == ""


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_a_job_that_runs_goes_on(jobs: Jobs, lose) -> None:
    """Also where a runner and a waiting caller have the database open."""
    job = jobs.add("-n0", "--", "sh", "-c", f"echo begun; {jobs.until_go}; exit 3")
    wait_until(lambda: jobs.machine.run("queue", "log", job).stdout == "begun\n")
    waits = jobs.machine.start("queue", "wait", job)
    with jobs.database() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    lose(jobs.directory / "queue.db")
    wait_until(lambda: listed(jobs)[0] == {int(job): "running"})
    other = jobs.add("-n0", "--", "echo", "second")
    assert other == str(int(job) + 1)
    assert jobs.wait(other) == 0
    jobs.go.touch()
    assert jobs.wait(job) == 1
    assert listed(jobs)[0] == {int(job): "failed", int(other): "done"}
    assert jobs.log(job) == "begun\n"
    assert waits.wait(timeout=10) == 1, waits.communicate()
    forget_damage(jobs)


@pytest.mark.parametrize("size", [None, 0, 50, 3000])
def test_what_stands_in_the_log_alone_is_kept(jobs: Jobs, size: int | None) -> None:
    """SQLite removes the log of an empty database. No job has begun, so no output tells of them."""
    jobs("pause")
    jobs.add("-n0", "--array=1-300", "--", "echo", "waits")
    last = jobs.add("-n0", "--", "true")
    wait_until(lambda: jobs.runner() is None)
    assert (jobs.directory / "queue.db-wal").stat().st_size > 10 * PAGE
    if size is None:
        (jobs.directory / "queue.db").unlink()
    else:
        os.truncate(jobs.directory / "queue.db", size)
    states, said = listed(jobs)
    assert list(states) == list(range(1, int(last) + 1)), said
    assert set(states.values()) == {"queued"}
    assert jobs.add("-n0", "--", "true") == str(int(last) + 1)
    forget_damage(jobs)


def test_an_old_copy_in_its_place_overwrites_no_output(jobs: Jobs) -> None:
    jobs("pause")
    first = jobs.add("-n0", "--", "sh", "-c", "echo by $$")
    checkpoint(jobs)
    old = (jobs.directory / "queue.db").read_bytes()
    jobs("resume")
    assert jobs.wait(first) == 0
    said = jobs.log(first)
    put_back(jobs, old)
    jobs("resume")
    assert jobs.wait(first) == 0
    (kept,) = (jobs.directory / "output").glob("1.1.log.of-*")
    assert kept.read_text() == said != jobs.log(first)


@pytest.fixture
def new_directory(jobs: Jobs) -> Iterator[Jobs]:
    (jobs.directory / "output").mkdir(parents=True)
    yield jobs
    wait_until(lambda: jobs.runner() is None)
    for part in [*jobs.directory.glob("queue.db*"), *jobs.directory.glob("output/*")]:
        part.unlink()


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE theirs(a)")
        connection.executemany("INSERT INTO theirs VALUES(?)", [("theirs" * 50,)] * 500)


def test_other_programs_files_are_left_alone(new_directory: Jobs) -> None:
    jobs = new_directory
    (jobs.directory / "output" / "1.1.log").write_text("said 1\n")
    file = jobs.directory / "queue.db"
    foreign(file)
    was = file.read_bytes()
    done = jobs.machine.run("queue", "list")
    assert done.returncode == 73 and "is not a queue's database" in done.stderr
    assert file.read_bytes() == was


@pytest.mark.parametrize("kind", ["copied", "moved", "linked"])
def test_so_they_are_beside_a_log_of_ours(jobs: Jobs, kind: str) -> None:
    """SQLite would write such logs into the restored pages."""
    jobs("pause")
    jobs.add("-n0", "--array=1-300", "--", "true")
    wait_until(lambda: jobs.runner() is None)
    assert (jobs.directory / "queue.db-wal").stat().st_size > 10 * PAGE
    theirs, file = jobs.machine.directory / "theirs.db", jobs.directory / "queue.db"
    ours = file.read_bytes()
    foreign(theirs)
    was = theirs.read_bytes()
    if kind == "copied":
        file.write_bytes(was)
    else:
        file.unlink()
        theirs.rename(file) if kind == "moved" else file.symlink_to(theirs)
    for _ in range(2):
        done = jobs.machine.run("queue", "list")
        assert done.returncode == 73 and len(done.stderr.splitlines()) == 1, done
    assert (theirs if kind == "linked" else file).read_bytes() == was
    file.unlink()
    file.write_bytes(ours)
    assert len(listed(jobs)[0]) == 300, "the log is as it was"


def test_an_empty_file_behind_a_link_is_left_alone(jobs: Jobs) -> None:
    jobs("pause")
    jobs.add("-n0", "--", "true")
    file, other = jobs.directory / "queue.db", jobs.machine.directory / "other"
    ours = file.read_bytes()
    file.unlink()
    other.touch()
    file.symlink_to(other)
    done = jobs.machine.run("queue", "list")
    assert done.returncode == 73 and other.stat().st_size == 0, done
    file.unlink()
    file.write_bytes(ours)
    assert listed(jobs)[0] == {1: "queued"}


def test_a_file_of_text_where_no_queue_was(new_directory: Jobs) -> None:
    file = new_directory.directory / "queue.db"
    file.write_text("notes\n" * 2000)
    done = new_directory.machine.run("queue", "list")
    assert done.returncode == 73 and "is not a queue's database" in done.stderr
    assert file.read_text() == "notes\n" * 2000


def test_a_new_queue_begins_in_silence(new_directory: Jobs) -> None:
    assert new_directory.add("-n0", "--", "true") == "1"
    assert listed(new_directory)[1] == ""

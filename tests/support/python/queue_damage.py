"""A queue whose database a test damages, and the program's messages about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from innkeeper_program import Jobs, wait_until

PAGE = 4096
SAID = re.compile(
    r"innkeeper: the queue's database was damaged and has been mended; (\d+) jobs are lost\. "
    r"(\S+) is what it was"
)


def checkpoint(jobs: Jobs) -> Path:
    """Brings all rows into the database's file, and returns the file."""
    wait_until(lambda: jobs.runner() is None)
    file = jobs.directory / "queue.db"
    with jobs.database() as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    return file


def put_back(jobs: Jobs, database: bytes) -> None:
    """Makes this the whole database, without a log."""
    wait_until(lambda: jobs.runner() is None)
    for part in jobs.directory.glob("queue.db*"):
        part.unlink()
    (jobs.directory / "queue.db").write_bytes(database)


def listed(jobs: Jobs) -> tuple[dict[int, str], str]:
    """The jobs' states by id, and the text on standard error."""
    done = jobs.machine.run("queue", "list", "--all", "--json")
    assert done.returncode == 0, done.stderr
    return {job["id"]: job["state"] for job in json.loads(done.stdout)["jobs"]}, done.stderr


def forget_damage(jobs: Jobs) -> None:
    """Removes the damaged copies, so that no list mentions them."""
    for kind in ("damaged", "unreadable"):
        for file in jobs.directory.glob(f"queue.db.{kind}-*"):
            file.unlink()


@pytest.fixture
def filled(jobs: Jobs) -> Iterator[Jobs]:
    """40 jobs that ended and said their number, and 300 that wait for GPUs that are not given."""
    jobs("slots", "4")
    for number in range(1, 41):
        jobs.add("-n0", "--", "sh", "-c", f"echo said {number}")
    assert jobs.wait("1-40") == 0
    jobs("pause")
    jobs.add("--array", "1-299", "--", "echo", "waits {index}")
    jobs.add("--after", "41", "--", "echo", "last")
    yield jobs
    forget_damage(jobs)

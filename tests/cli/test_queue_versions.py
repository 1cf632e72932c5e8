"""`innkeeper queue` on databases that older versions of the program made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from innkeeper_program import Jobs, wait_until
from small_disk import fill, small_disk

__all__ = ["small_disk"]

FIRST = """
CREATE TABLE commands(
  id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, directory BLOB NOT NULL, words BLOB NOT NULL,
  runs INTEGER NOT NULL DEFAULT 0, peak_memory INTEGER NOT NULL DEFAULT 0,
  peak_host INTEGER NOT NULL DEFAULT 0);
CREATE INDEX commands_hash ON commands(hash);
CREATE TABLE environments(id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE INDEX environments_hash ON environments(hash);
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  array INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0,
  how INTEGER NOT NULL DEFAULT 0, code INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL,
  cards INTEGER NOT NULL, memory INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
  unmet INTEGER NOT NULL, added INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,
  ended INTEGER NOT NULL DEFAULT 0, title BLOB NOT NULL,
  slots INTEGER NOT NULL, retries INTEGER NOT NULL, cancel INTEGER NOT NULL DEFAULT 0,
  command INTEGER NOT NULL, environment INTEGER NOT NULL);
CREATE INDEX jobs_ready_cards ON jobs(priority DESC, id)
  WHERE state = 0 AND held = 0 AND unmet = 0 AND cards > 0;
CREATE INDEX jobs_ready_cpu ON jobs(priority DESC, id)
  WHERE state = 0 AND held = 0 AND unmet = 0 AND cards = 0;
CREATE INDEX jobs_running ON jobs(id) WHERE state = 1;
CREATE INDEX jobs_array ON jobs(array) WHERE array > 0;
CREATE TABLE details(
  job INTEGER PRIMARY KEY, variables BLOB NOT NULL, by_mode INTEGER NOT NULL, exclusive INTEGER NOT NULL,
  time_limit_ms INTEGER NOT NULL, notify BLOB NOT NULL, reason BLOB NOT NULL DEFAULT x'');
CREATE TABLE needs(
  job INTEGER NOT NULL, needs INTEGER NOT NULL, any_end INTEGER NOT NULL, PRIMARY KEY(job, needs))
  WITHOUT ROWID;
CREATE INDEX needs_needs ON needs(needs);
CREATE TABLE attempts(
  job INTEGER NOT NULL, number INTEGER NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
  cards BLOB NOT NULL, how INTEGER NOT NULL, code INTEGER NOT NULL DEFAULT 0,
  peak_memory INTEGER NOT NULL DEFAULT 0, peak_host INTEGER NOT NULL DEFAULT 0, boot BLOB NOT NULL,
  PRIMARY KEY(job, number)) WITHOUT ROWID;
CREATE TABLE settings(name BLOB PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
"""The tables of version 1."""

SECOND = """
CREATE INDEX jobs_ended ON jobs(ended, id) WHERE state > 1;
CREATE TABLE endings(
  first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state INTEGER NOT NULL, array INTEGER NOT NULL);
"""
THIRD = """
ALTER TABLE jobs ADD COLUMN shape INTEGER NOT NULL DEFAULT 0;
DROP INDEX jobs_ready_cards;
CREATE INDEX jobs_ready_cards ON jobs(shape, priority DESC, id)
  WHERE state = 0 AND held = 0 AND unmet = 0 AND cards > 0;
"""
FOURTH = """
ALTER TABLE details ADD COLUMN grace_ms INTEGER NOT NULL DEFAULT 30000;
ALTER TABLE details ADD COLUMN linger INTEGER NOT NULL DEFAULT 0;
"""
LIMITS = "ALTER TABLE environments ADD COLUMN limits BLOB NOT NULL DEFAULT x'';"
TABLES = {
    "1": (1, FIRST),
    "2": (2, FIRST + SECOND),
    "3, at its beginning": (3, FIRST + SECOND + THIRD),
    "3, at its end": (3, FIRST + SECOND + THIRD + LIMITS),
    "4": (4, FIRST + SECOND + THIRD + LIMITS + FOURTH),
}
ROWS = """
INSERT INTO commands(id, hash, directory, words) VALUES
  (1, 11, CAST('/' AS BLOB), CAST('/bin/echo' || char(0) || 'first' || char(0) AS BLOB)),
  (2, 12, CAST('/' AS BLOB), CAST('/bin/echo' || char(0) || 'on a GPU' || char(0) AS BLOB));
INSERT INTO environments(id, hash, bytes) VALUES(1, 13, CAST('PATH=/usr/bin:/bin' || char(0) AS BLOB));
INSERT INTO jobs(id, array, state, priority, cards, memory, attempt, unmet, added, started, ended, title,
                 slots, retries, command, environment) VALUES
  (1, 0, 2, 0, 0, 0, 1, 0, 1000, 2000, 3000, CAST('ended' AS BLOB), 1, 0, 1, 1),
  (2, 0, 0, 0, 0, 0, 0, 0, 4000, 0, 0, CAST('waits' AS BLOB), 1, 0, 1, 1),
  (3, 0, 0, 5, 1, 0, 0, 0, 5000, 0, 0, CAST('on a GPU' AS BLOB), 1, 0, 2, 1),
  (4, 0, 0, 0, 1, 1073741824, 0, 1, 6000, 0, 0, CAST('after it' AS BLOB), 1, 0, 2, 1);
INSERT INTO details(job, variables, by_mode, exclusive, time_limit_ms, notify) VALUES
  (1, x'', 0, -1, 0, x''), (2, x'', 0, -1, 0, x''), (3, x'', 0, -1, 0, x''), (4, x'', 0, -1, 60000, x'');
INSERT INTO needs VALUES(4, 3, 0);
INSERT INTO attempts(job, number, started, ended, cards, how, boot) VALUES(1, 1, 2000, 3000, x'', 0, x'');
"""


def make(jobs: Jobs, version: str) -> None:
    """Replaces the queue's database by that in which the version left four jobs."""
    jobs("list")  # makes the directory
    for file in jobs.directory.glob("queue.db*"):
        file.unlink()
    number, tables = TABLES[version]
    with jobs.database() as connection:
        connection.executescript(
            f"PRAGMA auto_vacuum=INCREMENTAL; BEGIN; {tables} {ROWS} "
            f"PRAGMA application_id={0x494E4B51}; PRAGMA user_version={number}; COMMIT;"
        )


@pytest.mark.parametrize("version", TABLES)
def test_an_older_database_goes_on(jobs: Jobs, version: str) -> None:
    make(jobs, version)
    added = jobs.add("-n0", "--", "/bin/echo", "new")
    assert added == "5"
    wait_until(lambda: all(job["state"] == "done" for job in listed(jobs)))
    assert [job["id"] for job in listed(jobs)] == [1, 2, 3, 4, 5]
    assert [jobs.log(str(job)) for job in (2, 3, 4, 5)] == ["first\n", "on a GPU\n", "on a GPU\n", "new\n"]
    assert jobs.show("4")["time_limit"] == 60
    with jobs.database() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (5,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def listed(jobs: Jobs) -> list[dict[str, object]]:
    return json.loads(jobs("list", "--all", "--json"))["jobs"]


def test_on_a_full_disk_it_goes_on_later(jobs: Jobs, small_disk: Path) -> None:
    jobs.put_on(small_disk)
    make(jobs, "1")
    filler = fill(small_disk)
    done = jobs.machine.run("queue", "list", "--all")
    assert done.returncode == 73 and "0 B free of 1.0 MiB" in done.stderr, done
    with jobs.database() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    filler.unlink()
    assert [job["id"] for job in listed(jobs)] == [1, 2, 3, 4]


def test_a_newer_one_is_left_alone(jobs: Jobs) -> None:
    jobs("list")
    with jobs.database() as connection:
        connection.execute("PRAGMA user_version=6")
    done = jobs.machine.run("queue", "list")
    assert done.returncode != 0 and "is of version 6, this program's is 5" in done.stderr
    with jobs.database() as connection:
        connection.execute("PRAGMA user_version=5")

"""A logout removes its user's files in /dev/shm: leases there are made again, or the loss is reported."""

from __future__ import annotations

import re

import pytest
from innkeeper_program import uuid
from test_setup import OTHER, THIRD, Sandbox, needs_root, sandbox

__all__ = ["sandbox"]

NOTE = "leases in /dev/shm/innkeeper are removed when "
# A machine run by systemd, where none but root may make files in /run/lock, as on Fedora.
MACHINE = (
    "echo alice:x:12345:12345::/: >> /etc/passwd; chmod 0755 /run/lock; mkdir -p /run/systemd/sessions\n"
)
# The directory is another user's, so that the logout leaves it and its lock.
DIRECTORY = f"{THIRD} innkeeper pick > /dev/null 2>&1"
# Alice's command has a lease there.
RUNNING = f"{DIRECTORY}; {OTHER} innkeeper run -- sleep 60 & sleep 0.5"
# Prints 1: another user is granted nothing.
REFUSED = f"{THIRD} innkeeper pick 2>&1 | grep -c 'asked for'"
# Removes files as systemd-logind does (clean_ipc_by_uid).
LOG_OUT = "find /dev/shm -user 12345 -type f -delete"


@needs_root
def test_a_running_command_has_its_lease_again(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {RUNNING}
        id() {{ innkeeper lease list --json | grep -oE '"id": "[0-9a-f]+"'; }}
        id > /tmp/before.$$; {LOG_OUT}; id || echo none; sleep 2.5; id | diff /tmp/before.$$ - && echo same
        {REFUSED}
        kill $!; wait $! || true; rm /tmp/before.$$
        {THIRD} innkeeper pick 2> /dev/null; ls /dev/shm/innkeeper
        """
    )
    assert said.count(NOTE + "alice logs out") == 1
    assert said.endswith(f"none\nsame\n1\n{uuid(0)}\nalloc.lock\n"), said


@pytest.mark.slow  # The keeper looks again after ten seconds.
@needs_root
def test_where_others_have_its_gpus_it_is_said(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {OTHER} innkeeper run -- sleep 60 & sleep 0.5
        {LOG_OUT}; {THIRD} innkeeper run -- sleep 60 & sleep 3
        {THIRD} innkeeper lease list
        kill $!; sleep 11; innkeeper lease list
        kill $(jobs -p); wait || true
        """
    )
    assert re.search(
        "the lease [0-9a-f]{16} was removed from /dev/shm/innkeeper by a logout, and could not be made", said
    )
    assert said.count("was removed from") == 1
    between, after = re.findall(r"uid 23456|alice", said)[-2:]
    assert (between, after) == ("uid 23456", "alice"), said


@needs_root
def test_the_directories_owner_releases_none_of_others(sandbox: Sandbox) -> None:
    """The other user could remove it, and its holder would take that for a logout."""
    said = sandbox(
        f"""{MACHINE}
        {RUNNING}
        {THIRD} innkeeper lease release $(basename /dev/shm/innkeeper/l* | cut -c2-) || echo code $?
        {REFUSED}; kill $!; wait $! || true
        """
    )
    assert re.search(r"the lease [0-9a-f]{16} is alice's\ncode 77\n1\n", said), said


@needs_root
def test_a_file_of_its_name_does_not_keep_it_away(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {RUNNING}
        file=$(ls /dev/shm/innkeeper/l*)
        {LOG_OUT}; {THIRD} touch $file /dev/shm/innkeeper/t${{file##*/l}}; sleep 2.5
        {REFUSED}; kill $!; wait $! || true
        """
    )
    assert said.endswith("\n1\n"), said


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("first", ["keeper", "logout", "restored"])
def test_where_the_keeper_is_killed_run_does_it(sandbox: Sandbox, first: str) -> None:
    steps = {
        "keeper": f"pkill -KILL -P $run; sleep 0.3; {LOG_OUT}",
        "logout": f"{LOG_OUT}; pkill -KILL -P $run",
        "restored": f"{LOG_OUT}; sleep 2.5; pkill -KILL -P $run",
    }[first]
    said = sandbox(
        f"""{MACHINE}
        {DIRECTORY}
        {OTHER} innkeeper run -- sleep 60 & run=$!; sleep 0.5
        {steps}; sleep 2.5
        {REFUSED}; kill $run; wait $run || true
        """
    )
    assert said.endswith("\n1\n"), said


@pytest.mark.slow
@needs_root
def test_where_the_supervisor_is_killed_the_job_keeps_it(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {DIRECTORY}; mkdir -m 777 /run/home; export HOME=/run/home
        {OTHER} innkeeper queue add -- sleep 61; sleep 1.5
        {LOG_OUT}; sleep 3
        kill -KILL $(innkeeper lease list --json | grep -oE '"pid": ?[0-9]+' | grep -oE '[0-9]+'); sleep 5
        innkeeper lease list | grep -c alice
        pkill -u 12345 -f '^sleep 61'
        """
    )
    assert said.endswith("1\n"), said


@pytest.mark.slow
@needs_root
def test_a_held_lock_stops_nothing_else(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {DIRECTORY}
        {OTHER} innkeeper run -- sleep 3 & run=$!; sleep 0.5
        {THIRD} flock /dev/shm/innkeeper/alloc.lock sleep 12 & {LOG_OUT}
        begin=$(date +%s); wait $run; echo took $(( $(date +%s) - begin )); kill %2
        """
    )
    took = re.search(r"took (\d+)", said)
    assert took and int(took[1]) <= 5, said


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("how", ["hold", "add"])
def test_other_holders_of_a_lease_have_it_again(sandbox: Sandbox, how: str) -> None:
    command, end = {
        "hold": (f"{OTHER} innkeeper lease hold > /dev/null & sleep 0.5", "kill $!; wait $! || true"),
        "add": (f"{OTHER} innkeeper queue add -- sleep 60; sleep 1.5", f"{OTHER} innkeeper queue cancel 1"),
    }[how]
    said = sandbox(
        f"""{MACHINE}
        {DIRECTORY}; mkdir -m 777 /run/home; export HOME=/run/home
        {command}
        {LOG_OUT}; sleep 3.5; innkeeper lease list | grep -c alice
        {end}
        """
    )
    assert said.endswith("1\n"), said


@pytest.mark.slow
@needs_root
def test_a_waiting_request_keeps_its_place(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""{MACHINE}
        {THIRD} innkeeper run -- sleep 4 & sleep 0.5
        {OTHER} innkeeper run --wait -- sh -c 'echo first; sleep 2' & sleep 0.5
        {THIRD} innkeeper run --wait -- echo second & sleep 0.5
        {LOG_OUT}; wait
        """
    )
    assert re.search("first\nsecond\n$", said), said


@pytest.mark.slow
@needs_root
def test_what_is_ended_stays_ended(sandbox: Sandbox) -> None:
    """A release by its user, by root, and from inside, is no logout."""
    said = sandbox(
        f"""{MACHINE}
        {DIRECTORY}
        for who in "{OTHER}" ""; do
          {OTHER} innkeeper run -- sleep 60 & sleep 0.5
          id=$(innkeeper lease list | grep -oE '[0-9a-f]{{16}}')
          $who innkeeper lease release $id 2>&1 | grep -v '{NOTE}' || true
          sleep 2.5; {THIRD} innkeeper pick 2> /dev/null; kill $!; wait $! || true
        done
        """
    )
    assert said.count(uuid(0)) == 2, said


@needs_root
@pytest.mark.parametrize(
    "machine",
    [
        "rm -r /run/systemd",
        "mkdir -p /etc/systemd; echo RemoveIPC=no > /etc/systemd/logind.conf",
        "mount -t tmpfs tmpfs /var/lib; cd /var/lib; mkdir -p systemd/linger; touch systemd/linger/alice",
        "innkeeper setup > /dev/null",
        f"OTHER='{OTHER.replace('12345', '998')}'",
    ],
    ids=["no systemd", "configured", "lingers", "set up", "system user"],
)
def test_where_leases_stay_nothing_is_said(sandbox: Sandbox, machine: str) -> None:
    said = sandbox(
        f"""{MACHINE} OTHER='{OTHER}'; $OTHER innkeeper pick
        {machine}
        $OTHER innkeeper pick; $OTHER innkeeper doctor || true
        """
    )
    assert said.count(NOTE) == 1 and not re.search("(hint|trouble) +logout", said), said


@needs_root
def test_doctor_says_it(sandbox: Sandbox) -> None:
    said = sandbox(f"{MACHINE} {OTHER} innkeeper pick > /dev/null 2>&1; {OTHER} innkeeper doctor || true")
    assert re.search(f"trouble +logout +{NOTE}", said) and "innkeeper setup" in said, said

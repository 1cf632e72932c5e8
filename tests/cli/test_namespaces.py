"""Leases in containers and in the kernel's namespaces: none is granted twice, or the program reports it."""

from __future__ import annotations

import re

import pytest
from innkeeper_program import uuid
from test_setup import OTHER, UNSEEN, Sandbox, needs_root, sandbox

__all__ = ["sandbox"]

NAMESPACE = f"{OTHER} unshare --map-root-user"


@needs_root
def test_a_user_namespace_has_the_machines_directory(sandbox: Sandbox) -> None:
    """There the user's directory looks like root's, and root's looks like that of an unknown user."""
    said = sandbox(
        f"""
        innkeeper setup > /dev/null
        INNKEEPER_LEASE_DIR=/dev/shm/innkeeper {OTHER} innkeeper pick > /dev/null
        innkeeper run -- sleep 60 & sleep 0.5
        {NAMESPACE} stat -c '%n %u' /run/innkeeper /dev/shm/innkeeper
        {NAMESPACE} innkeeper pick || echo "ended with $?"
        {NAMESPACE} innkeeper status --json
        kill $!; wait $! || true
        {NAMESPACE} innkeeper run -- true && echo granted
        """
    )
    assert "/run/innkeeper 65534\n/dev/shm/innkeeper 0\n" in said
    assert "ended with 75" in said and said.endswith("granted\n")
    assert '"path": "/run/innkeeper"' in said and '"weakness": null' in said


@needs_root
def test_in_a_user_namespace_two_directories_are_not_told_apart(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        INNKEEPER_LEASE_DIR=/dev/shm/innkeeper {OTHER} innkeeper pick > /dev/null
        sleep 0.05; INNKEEPER_LEASE_DIR=/run/lock/innkeeper innkeeper pick > /dev/null
        {NAMESPACE} innkeeper pick || echo "ended with $?"
        INNKEEPER_LEASE_DIR=/run/lock/innkeeper {NAMESPACE} innkeeper pick
        rm -r /dev/shm/innkeeper
        {NAMESPACE} innkeeper pick
        """
    )
    assert (
        "in this user namespace nobody can tell whether the lease directory /run/lock/innkeeper is root's"
        in said
    )
    assert "ended with" in said and said.count(uuid(0)) == 2


@needs_root
def test_there_others_leases_count_in_full(sandbox: Sandbox) -> None:
    """All users without a number there appear as one user: a part might belong to another user's lease."""
    third = OTHER.replace("12345", "34567")
    said = sandbox(
        f"""
        innkeeper setup > /dev/null
        innkeeper run --mem 60G -- sleep 60 & sleep 0.3
        id=$(innkeeper lease list | grep -oE '[0-9a-f]{{16}}' | head -1)
        {third} innkeeper run --mem 60G -- sleep 60 & sleep 0.3
        file=$(find /run/innkeeper -name 'l*' -user 34567)
        {NAMESPACE} innkeeper pick --mem 30G || echo "ended with $?"
        {NAMESPACE} innkeeper pick --mem 10G
        kill $(jobs -p)
        """
    )
    assert "ended with 75" in said and uuid(0) in said


def test_a_container_without_the_directory_says_so(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        export container=docker
        innkeeper pick; innkeeper run -- echo ran; innkeeper status; innkeeper doctor || true
        echo ----; INNKEEPER_LEASE_DIR=/dev/shm/own innkeeper pick
        echo ----; mkdir -p /dev/shm/volumes/kubernetes.io~empty-dir/v /dev/shm/machine
        chmod 1777 /dev/shm/machine /dev/shm/volumes/kubernetes.io~empty-dir/v; rm -r /run/lock/innkeeper
        mount --bind /dev/shm/volumes/kubernetes.io~empty-dir/v /run/lock; innkeeper pick; umount /run/lock
        echo ----; mount --bind /dev/shm/machine /run/lock; innkeeper pick; umount /run/lock
        rm -r /dev/shm/*
        echo ----; mkdir /run/innkeeper; mount -t tmpfs -o mode=1777 tmpfs /run/innkeeper; innkeeper pick
        """
    )
    alone, named, volume, machine, mounted = said.split("----\n")
    assert alone.count(UNSEEN + "/run/lock/innkeeper") == 3 and "trouble container" in re.sub(
        " +", " ", alone
    )
    assert UNSEEN + "/run/lock/innkeeper" in volume
    for text in (named, machine, mounted):
        assert text == uuid(0) + "\n"


@pytest.mark.parametrize("proc", ["", "umount -l /proc;"], ids=["another's /proc", "no /proc"])
def test_a_pid_namespace_without_its_proc(sandbox: Sandbox, proc: str) -> None:
    said = sandbox(
        f"""
        unshare --pid --fork --kill-child bash -c '{proc}
            innkeeper run -- sh -c "exit 3"; echo "ended with $?"
            echo "$(innkeeper run -- sh -c "sleep 3 >/dev/null & echo said")"
            innkeeper pick || echo busy
            sleep 4; innkeeper pick'
        """
    )
    assert re.search(rf"ended with 3\nsaid\n(.*\n)*busy\n{uuid(0)}\n$", said), said

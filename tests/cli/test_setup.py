"""`innkeeper setup`, in a mount namespace where /run, /dev/shm and /etc are the test's own.

Run by root, the tests try other users too. Run by another user, they make that user root in the namespace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from innkeeper_program import (
    FAKE,
    PROGRAM,
    Command,
    gpus,
    kill_runners,
    run_command,
    uuid,
    watch_for_runners,
)

AS_ROOT = os.geteuid() == 0
UNSHARE = ["unshare", "--mount", "--propagation", "private", *([] if AS_ROOT else ["--map-root-user"])]
OTHER = "setpriv --reuid 12345 --regid 12345 --clear-groups"
THIRD = "setpriv --reuid 23456 --regid 23456 --clear-groups"
UNIT = "etc/systemd/system/run-innkeeper.mount"
WANTED = "etc/systemd/system/local-fs.target.wants/run-innkeeper.mount"
TMPFILES = "etc/tmpfiles.d/innkeeper.conf"
UNSEEN = "nobody outside of this container sees the leases in "
NOT_SYSTEMD = "this machine is not run by systemd"


class Sandbox:
    """A machine where all may write to /run/lock and /dev/shm, as on Debian, and nothing is there yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.etc = directory / "etc"
        self.etc.mkdir()
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", name).exists():
                shutil.copy(Path("/etc", name), self.etc)
        (directory / "gpus").write_text(gpus(1))
        for file in (PROGRAM, FAKE):
            shutil.copy(file, directory / file.name)
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o755)
        self.env = {
            "PATH": f"{directory}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(directory),
            "INNKEEPER_NVML": str(directory / FAKE.name),
            "INNKEEPER_FAKE_NVML": str(directory / "gpus"),
            "LANG": "C.UTF-8",
        }
        if run_command(*UNSHARE, "true").returncode != 0:
            pytest.skip("no mount namespace may be made here")

    def __call__(self, script: str, code: int = 0) -> str:
        """Output of a shell script there, with its errors; the script must end with this code."""
        mounts = f"""set -eu
            mount -t tmpfs -o mode=1777 tmpfs /dev/shm
            mount -t tmpfs -o mode=0755 tmpfs /run; mkdir -m 0755 /run/lock
            mount -t tmpfs -o mode=1777,size=64k tmpfs /run/lock
            mount --bind {self.etc} /etc
            exec 2>&1; cd /
        """
        done = run_command(*UNSHARE, "bash", "-c", mounts + script, env=self.env)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        if "export container=" in script:
            return done.stdout
        # The tests may run in a container themselves.
        return "".join(line for line in done.stdout.splitlines(keepends=True) if UNSEEN not in line)


@pytest.fixture
def sandbox(program: Path, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    directory = Path(tempfile.mkdtemp(prefix="innkeeper-setup-", dir="/tmp"))
    watch_for_runners(request, directory)
    yield Sandbox(directory)
    kill_runners(directory)
    shutil.rmtree(directory)


needs_root = pytest.mark.skipif(not AS_ROOT, reason="needs root to become another user")


def test_it_makes_a_directory_that_protects(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        innkeeper setup
        stat -c '%n %a %u' /run/innkeeper /run/innkeeper/alloc.lock
        findmnt -n -o FSTYPE,OPTIONS /run/innkeeper
        innkeeper pick
        innkeeper status --json
        innkeeper doctor || true
        """
    )
    assert f"wrote /{TMPFILES}\nwrote /{UNIT}\nmade /{WANTED}\n" in said
    assert "mounted /run/innkeeper, a tmpfs with size=65536k,nr_inodes=16384" in said
    assert "/run/innkeeper 1777 0\n/run/innkeeper/alloc.lock 444 0\n" in said
    options = re.search(r"^tmpfs +(\S+)$", said, re.MULTILINE)
    assert options is not None
    assert {"rw", "nosuid", "nodev", "noexec", "size=65536k", "nr_inodes=16384"} <= set(options[1].split(","))
    assert uuid(0) in said
    assert '"path": "/run/innkeeper"' in said and '"weakness": null' in said
    assert "good    lease-directory   leases are in /run/innkeeper, 0 held, 0 waiting" in said
    assert not re.search(r"directory-owner|directory-room|other-directory|directory-rights", said)


def test_again_it_does_nothing(sandbox: Sandbox) -> None:
    said = sandbox("innkeeper setup > /dev/null; innkeeper setup")
    assert said.endswith("nothing to do: leases are in /run/innkeeper, with 64.0 MiB of its own\n"), said
    # A second set-up ends no lease.
    said = sandbox(
        """
        innkeeper setup > /dev/null
        innkeeper run -- sleep 60 & sleep 0.5; innkeeper setup | tail -1; innkeeper lease list; kill $!
        """
    )
    assert "nothing to do" in said and "sleep 60" in said


def test_what_users_had_made_before_goes(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        ln -s /etc /dev/shm/innkeeper
        innkeeper pick && exit 1
        rm /dev/shm/innkeeper
        INNKEEPER_LEASE_DIR=/run/lock/innkeeper innkeeper pick
        ln -s /etc /dev/shm/innkeeper
        innkeeper setup
        ls -a /run/lock /dev/shm; ls /etc
        """
    )
    assert (
        "cannot open the lease directory /dev/shm/innkeeper: Not a directory; `innkeeper setup`, as root,"
        in said
    )
    assert "removed /dev/shm/innkeeper\n" in said and "removed /run/lock/innkeeper\n" in said
    assert said.count("innkeeper\n") >= 2 and "passwd" in said, "what the link leads to is left alone"
    listed = said[said.rindex("removed") :]
    assert not re.search(r"^innkeeper$", listed, re.MULTILINE)


def test_leases_that_are_held_elsewhere_are_not_forgotten(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        innkeeper run -- sleep 60 & sleep 0.5
        innkeeper run --wait -- true > {sandbox.directory}/waited 2>&1 & waits=$!; sleep 0.5
        innkeeper setup && exit 1; echo "code $?"
        ls -d /run/innkeeper && exit 1
        innkeeper pick && exit 1
        kill %1; wait %1 || true; wait $waits
        innkeeper setup; ls -d /run/lock/innkeeper || true
        """
    )
    held = r"[0-9a-f]{16} of \S+ \(pid \d+, innkeeper run -- sleep 60\)"
    assert re.search("innkeeper setup: leases are held in /run/lock/innkeeper: .*" + held, said)
    assert "or restart the machine: it is set up from then on\ncode 75\n" in said
    assert (sandbox.etc / "tmpfiles.d/innkeeper.conf").exists()
    assert "removed /run/lock/innkeeper\n" in said


def test_a_request_that_waits_in_a_directory_that_goes_is_told_and_gets_nothing_there(
    sandbox: Sandbox,
) -> None:
    # A place in the line is a lease file too, so `setup` refuses; another root directory appears by hand.
    said = sandbox(
        """
        mkdir -m 1777 /dev/shm/innkeeper; touch /dev/shm/innkeeper/alloc.lock
        innkeeper run -- sleep 60 & sleep 0.5
        innkeeper run --wait -- echo granted & waits=$!; sleep 1.5
        mkdir -m 1777 /run/innkeeper; touch /run/innkeeper/alloc.lock
        kill %1; wait $waits && exit 1; echo "code $?"
        """
    )
    assert "the leases of this machine are not in /dev/shm/innkeeper any more" in said
    assert "granted" not in said and "code 73" in said


@needs_root
def test_roots_directory_goes_before_every_other_users(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        INNKEEPER_LEASE_DIR=/dev/shm/innkeeper innkeeper run -- sleep 60 & sleep 0.5
        {OTHER} mkdir -m 1777 /run/lock/innkeeper
        innkeeper pick && exit 1
        {OTHER} innkeeper pick && exit 1
        {THIRD} innkeeper run -- true && exit 1
        innkeeper status | grep 'not used'; innkeeper doctor | grep other-directory
        {OTHER} innkeeper lease list
        kill %1
        """
    )
    line = "/run/lock/innkeeper of uid 12345 is there too, and is not used: it is not root's"
    assert said.count(f"innkeeper: leases are in /dev/shm/innkeeper; {line}") == 3, "pick, pick, run"
    assert f"\nleases are in /dev/shm/innkeeper; {line}\n" in said
    assert f"trouble other-directory   {line}" in said
    assert said.count(f"{uuid(0)}: 0 B left") == 3


@needs_root
def test_among_friends_a_later_user_shadows_no_other(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        {OTHER} env INNKEEPER_LEASE_DIR=/dev/shm/innkeeper innkeeper run -- sleep 60 & sleep 0.5
        {THIRD} mkdir -m 1777 /run/lock/innkeeper
        {THIRD} innkeeper pick && exit 1
        {OTHER} innkeeper status
        kill %1
        """
    )
    assert "and is not used: it was made later" in said
    weakness = "/dev/shm/innkeeper is uid 12345's, not root's"
    assert f"leases protect among friends only: {weakness}. As root: innkeeper setup\n" in said


@needs_root
def test_a_lock_that_is_not_roots_protects_no_user_and_is_replaced(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        innkeeper setup > /dev/null; rm /run/innkeeper/alloc.lock
        {OTHER} innkeeper pick; stat -c 'lock %u %a' /run/innkeeper/alloc.lock
        innkeeper status | grep friends; innkeeper doctor | grep directory-owner
        {OTHER} innkeeper run -- sleep 60 & sleep 0.5
        innkeeper setup; stat -c 'lock %u %a' /run/innkeeper/alloc.lock
        stat -c 'directory %u %a' /run/innkeeper
        {THIRD} innkeeper pick && exit 1; kill %1
        for kind in 'mkdir' 'ln -s /etc/passwd' 'mkfifo'; do
          rm -rf /run/innkeeper/alloc.lock; {OTHER} $kind /run/innkeeper/alloc.lock
          innkeeper setup; stat -c '%F' /run/innkeeper/alloc.lock
        done
        """
    )
    assert "lock 12345 444" in said and "lock 0 444" in said and "directory 0 1777" in said
    assert "leases protect among friends only: /run/innkeeper/alloc.lock is not root's" in said
    assert "hint    directory-owner" in said
    assert said.count("made /run/innkeeper/alloc.lock\n") == 4 and said.count("regular empty file\n") == 3


@needs_root
def test_a_group_alone_may_take_leases_and_all_may_look(sandbox: Sandbox) -> None:
    with (sandbox.etc / "group").open("a") as file:
        file.write("gpu:x:4321:\n")
    member = "setpriv --reuid 12345 --regid 12345 --groups 4321"
    said = sandbox(
        f"""
        innkeeper setup --group gpu
        stat -c '%n %a %u %g' /run/innkeeper /run/innkeeper/alloc.lock
        {member} innkeeper run -- sleep 60 & sleep 0.5
        {THIRD} innkeeper lease list
        {THIRD} innkeeper pick && exit 1; echo "code $?"
        {THIRD} flock /run/innkeeper/alloc.lock true && exit 1
        {THIRD} innkeeper doctor || true
        innkeeper setup --group gpu; innkeeper setup
        stat -c '%n %a %u %g' /run/innkeeper /run/innkeeper/alloc.lock
        cat /etc/tmpfiles.d/innkeeper.conf
        kill %1
        innkeeper setup --group nobodys && exit 1; echo "code $?"
        """
    )
    assert "/run/innkeeper 1775 0 4321\n/run/innkeeper/alloc.lock 440 0 4321\n" in said
    assert "innkeeper run -- sleep 60" in said
    assert "cannot open /run/innkeeper/alloc.lock: Permission denied\ncode 73" in said
    assert "trouble directory-rights" in said
    assert "nothing to do" in said, "the second time"
    assert "/run/innkeeper 1777 0 0\n/run/innkeeper/alloc.lock 444 0 0\n" in said
    assert "--group nobodys: there is no such group" in said and "code 64" in said


@needs_root
def test_no_user_can_fill_it_from_outside(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        fill() {{ {OTHER} dd if=/dev/zero of=/run/lock/full bs=4k status=none || true; }}
        fill; innkeeper pick && exit 1; rm /run/lock/full
        innkeeper setup; fill; innkeeper pick
        """
    )
    assert "No space left on device" in said[: said.index("wrote")]
    assert said.endswith(f"{uuid(0)}\n")


@pytest.mark.slow  # The program waits five seconds for the lock.
@needs_root
def test_a_lock_that_is_held_is_named(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        {OTHER} innkeeper pick
        {OTHER} sh -c 'exec 9< /run/lock/innkeeper/alloc.lock; flock 9; exec sleep 60' & sleep 0.5
        innkeeper setup && exit 1; echo "code $?"; kill %1
        """
    )
    assert re.search(r"alloc.lock has been locked for 5000 ms by pid \d+", said)
    assert "code 75" in said


def test_a_directory_with_other_files_in_it_stays_and_is_not_used(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        INNKEEPER_LEASE_DIR=/dev/shm/innkeeper innkeeper pick; touch /dev/shm/innkeeper/mine
        innkeeper setup; ls /dev/shm/innkeeper; innkeeper pick
        """
    )
    assert "cannot remove /dev/shm/innkeeper, which is not used any more: Directory not empty" in said
    assert "\nmine\n" in said
    assert "leases are in /run/innkeeper; /dev/shm/innkeeper of " in said


def test_in_a_container_doctor_says_what_to_mount_and_where_to_set_up(sandbox: Sandbox) -> None:
    inside = sandbox.directory / "lock"  # A plain directory, like /run/lock of an image.
    inside.mkdir()
    inside.chmod(0o1777)
    said = sandbox(f"mount --bind {inside} /run/lock; container=docker innkeeper doctor --json || true")
    cures = {finding["name"]: finding["cure"] for finding in json.loads(said)["findings"]}
    assert cures["directory-room"] == "outside of this container, as root: innkeeper setup"
    if inside.stat().st_dev == Path("/").stat().st_dev:
        assert "docker run -v /run/innkeeper:/run/innkeeper" in cures["container"]


@pytest.mark.parametrize(("source", "shared"), [("shm", False), ("tmpfs", True)])
def test_a_containers_own_shared_memory_is_not_the_machines(
    sandbox: Sandbox, source: str, shared: bool
) -> None:
    said = sandbox(
        f"""
        umount -l /run/lock; mount -t tmpfs {source} /dev/shm; chmod 1777 /dev/shm
        export container=docker INNKEEPER_LEASE_DIR=/dev/shm/innkeeper
        innkeeper pick > /dev/null 2>&1; innkeeper doctor --json || true
        """
    )
    assert ("container" in {finding["name"] for finding in json.loads(said)["findings"]}) == (not shared)


def test_its_size(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        innkeeper setup --size 8M; innkeeper setup --size 16M; innkeeper setup --size 16M
        findmnt -n -o OPTIONS /run/innkeeper
        for size in 1K 65G soon; do innkeeper setup --size $size && exit 1; echo "code $?"; done
        """
    )
    assert "gave /run/innkeeper room for 16.0 MiB in place of 8.0 MiB\n" in said
    assert "nothing to do: leases are in /run/innkeeper, with 16.0 MiB of its own" in said
    assert "size=16384k" in said and said.count("code 64") == 3
    assert "size=16384k" in (sandbox.etc / "systemd/system/run-innkeeper.mount").read_text()


def test_it_can_be_undone(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        innkeeper setup > /dev/null
        innkeeper run -- sleep 60 & sleep 0.5
        innkeeper setup --remove && exit 1; echo "code $?"
        ls -d /run/innkeeper /etc/tmpfiles.d/innkeeper.conf
        kill %1; wait %1 || true
        innkeeper setup --remove; ls /run; find /etc -name '*innkeeper*'
        innkeeper setup --remove; innkeeper pick; ls -d /run/lock/innkeeper
        """
    )
    assert "leases are held in /run/innkeeper: " in said and "code 75\n/etc/tmpfiles.d" in said
    removed = ["/run/innkeeper", f"/{WANTED}", f"/{UNIT}", f"/{TMPFILES}"]
    assert "".join(f"removed {path}\n" for path in removed) in said
    assert "nothing to remove\n" in said and said.endswith("/run/lock/innkeeper\n")
    assert not list(sandbox.etc.rglob("*innkeeper*"))


@pytest.mark.usefixtures("runners")
def test_a_process_with_the_directory_open_when_it_goes_grants_nothing_there(sandbox: Sandbox) -> None:
    # A queue's runner keeps the directory open: it must not go on in a directory that other processes do not
    # see.
    said = sandbox(
        f"""
        export INNKEEPER_QUEUE_DIR={sandbox.directory}/queue
        innkeeper setup > /dev/null
        job=$(innkeeper queue add -- sh -c 'sleep 1; true'); held=$(innkeeper queue add -- sleep 60)
        innkeeper queue wait $job
        innkeeper queue pause $held; innkeeper queue cancel $held; innkeeper queue wait $held || true
        innkeeper lease list; innkeeper setup --remove > /dev/null
        innkeeper run -- sleep 60 & sleep 0.5
        next=$(innkeeper queue add -- true); innkeeper queue wait --timeout 3s $next && exit 1
        kill %1; innkeeper queue wait --timeout 20s $next
        while kill -0 $(cat $INNKEEPER_QUEUE_DIR/runner.lock) 2> /dev/null; do sleep 0.1; done; echo done
        """
    )
    assert said.endswith("done\n"), said


def test_a_dry_run_changes_nothing(sandbox: Sandbox) -> None:
    who = OTHER if AS_ROOT else ""
    said = sandbox(
        f"""
        innkeeper pick > /dev/null
        {who} innkeeper setup --dry-run; find /etc /run /dev/shm -name '*innkeeper*'
        echo then; innkeeper setup > /dev/null 2>&1; innkeeper setup --dry-run
        {who} innkeeper setup --dry-run --size 8M --remove; find /run /etc -name '*innkeeper*' | sort
        """
    )
    first, _, then = said.partition("then\n")
    assert f"would write /{UNIT}:\n# Made by `innkeeper setup`" in first
    assert "would mount /run/innkeeper, a tmpfs with size=65536k" in first
    assert "would set the rights of /run/innkeeper" in first and "would remove /run/lock/innkeeper" in first
    assert first.endswith("/run/lock/innkeeper\n") and first.count("\n/etc") == 0
    assert then.startswith("nothing to do")
    assert "would remove /run/innkeeper\n" in then and f"would remove /{UNIT}\n" in then
    assert f"/{TMPFILES}\n" in then and then.endswith("/run/innkeeper\n")


@needs_root
def test_only_root_may(sandbox: Sandbox) -> None:
    said = sandbox(
        f"""
        {OTHER} innkeeper setup && exit 1; echo "code $?"
        {OTHER} innkeeper setup --remove && exit 1; echo "code $?"
        setpriv --bounding-set -sys_admin --inh-caps -sys_admin innkeeper setup && exit 1; echo "code $?"
        find /etc /run -name '*innkeeper*'
        """
    )
    assert said.count("this is for root: sudo innkeeper setup") == 2 and said.count("code 77") == 3
    assert "nothing may be mounted here: set up the machine" in said
    assert said.endswith("code 77\n"), "and nothing was written"


def test_files_that_are_not_its_own_are_left_alone(sandbox: Sandbox) -> None:
    said = sandbox(
        """
        mkdir -p /etc/tmpfiles.d; echo mine > /etc/tmpfiles.d/innkeeper.conf
        innkeeper setup && exit 1; echo "code $?"
        innkeeper setup --remove && exit 1; echo "code $?"
        find /run -name innkeeper; cat /etc/tmpfiles.d/innkeeper.conf
        """
    )
    assert said.count("/etc/tmpfiles.d/innkeeper.conf is there, and was not made by `innkeeper setup`") == 2
    assert said.endswith("code 73\nmine\n")


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd is not installed")
@pytest.mark.skipif(not AS_ROOT, reason="needs root to become another user")
def test_at_the_start_of_the_machine_it_is_there_again(sandbox: Sandbox) -> None:
    with (sandbox.etc / "group").open("a") as file:
        file.write("gpu:x:4321:\n")
    said = sandbox("innkeeper setup --group gpu")
    assert NOT_SYSTEMD in said, "in a sandbox nothing is"
    unit = (sandbox.etc / "systemd/system/run-innkeeper.mount").read_text()
    assert (sandbox.etc / "systemd/system/local-fs.target.wants/run-innkeeper.mount").is_symlink()
    options = re.search(r"^Options=(.*)$", unit, re.MULTILINE)
    assert options is not None
    said = sandbox(
        f"""
        mkdir /run/innkeeper; mount -t tmpfs -o {options[1]} tmpfs /run/innkeeper
        stat -c 'before %a' /run/innkeeper
        systemd-tmpfiles --create /etc/tmpfiles.d/innkeeper.conf
        stat -c '%n %a %u %g' /run/innkeeper /run/innkeeper/alloc.lock
        innkeeper setup --group gpu; innkeeper pick
        """
    )
    assert (
        "before 755\n/run/innkeeper 1775 0 4321\n/run/innkeeper/alloc.lock 440 0 4321\nnothing to do" in said
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_good(command: Command, tmp_path: Path) -> None:
    done = command(PROGRAM, "setup", "--root", tmp_path, check=True)
    assert done.stdout == f"wrote {tmp_path}/{TMPFILES}\nwrote {tmp_path}/{UNIT}\nmade {tmp_path}/{WANTED}\n"
    assert sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()
    ) == sorted([TMPFILES, UNIT, WANTED])
    checked = command("systemd-analyze", "verify", tmp_path / UNIT)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_an_image_of_a_machine(command: Command, tmp_path: Path) -> None:
    setup = [str(PROGRAM), "setup", f"--root={tmp_path}/"]
    for words in ([], ["--group", "gpu", "--size=8M"]):  # The groups of the image are not this machine's.
        command(*setup, *words, check=True)
    assert (
        "d /run/innkeeper 1775 root gpu -\nf /run/innkeeper/alloc.lock 0440 root gpu -\n"
        in (tmp_path / TMPFILES).read_text()
    )
    assert "size=8192k" in (tmp_path / UNIT).read_text()
    assert stat.S_IMODE((tmp_path / UNIT).stat().st_mode) == 0o644
    again = command(*setup, "--group=gpu", "--size=8M", check=True)
    assert again.stdout.startswith("nothing to do")
    command(*setup, "--remove", check=True)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []

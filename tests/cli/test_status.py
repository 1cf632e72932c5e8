"""status: the table, JSON and Prometheus' format, of machines good and bad."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios

import pytest
from innkeeper_program import PROGRAM, Machine, gpus, uuid, wait_until

TEXT, NUMBER, NULL, FLAG = str, (int, float), type(None), bool
NUMBER_OR_NULL, TEXT_OR_NULL = (int, float, NULL), (str, NULL)
GPU = {
    "gpu": TEXT,
    "uuid": TEXT,
    "bus_id": TEXT,
    "name": TEXT,
    "mig_instance_of": TEXT_OR_NULL,
    "memory": (dict, NULL),
    "utilization_percent": NUMBER_OR_NULL,
    "memory_bandwidth_percent": NUMBER_OR_NULL,
    "power": (dict, NULL),
    "temperature_celsius": NUMBER_OR_NULL,
    "sm_clock_mhz": NUMBER_OR_NULL,
    "memory_clock_mhz": NUMBER_OR_NULL,
    "promised_bytes": NUMBER_OR_NULL,
    "foreign_bytes": NUMBER_OR_NULL,
    "left_bytes": NUMBER_OR_NULL,
    "whole": FLAG,
    "waiting": int,
    "leases": list,
    "processes": (list, NULL),
}
PROCESS = {
    "pid": int,
    "used_bytes": NUMBER_OR_NULL,
    "user": TEXT_OR_NULL,
    "command": TEXT_OR_NULL,
    "lease": TEXT_OR_NULL,
}
DOCUMENT = {
    "schema": int,
    "time_unix_seconds": NUMBER,
    "driver": dict,
    "gpus": list,
    "lost": list,
    "visible": (list, NULL),
    "lease_directory": dict,
    "leases": list,
    "waiting": list,
    "managed": list,
}


def conforms(value: dict, schema: dict) -> None:  # type: ignore[type-arg]
    assert list(value) == list(schema)
    for key, kinds in schema.items():
        assert isinstance(value[key], kinds), (key, value[key])


def document(machine: Machine, **env: str) -> dict:  # type: ignore[type-arg]
    found = json.loads(machine.ok("status", "--json", env=env))
    conforms(found, DOCUMENT)
    assert found["schema"] == 1
    for gpu in found["gpus"]:
        conforms(gpu, GPU)
        for process in gpu["processes"] or []:
            conforms(process, PROCESS)
    return found


def busy(machine: Machine) -> tuple[int, int]:
    """A lease of 8 GiB on GPU 0 whose job uses 3 GiB; a process without a lease uses 5 GiB there.

    The processes of `run` and of its command.
    """
    run = machine.start("run", "--mem", "8G", "--", "sleep", "60")
    command = machine.command_below(run)
    used = f"  process {command} 3G\n  process {os.getpid()} 5G\n"
    machine.set(gpus(2, {0: f"  memory 139G 512M 8G\n{used}  utilization 35 10\n"}))
    return run.pid, command


def test_json_has_holders_users_promised_and_foreign_bytes(machine: Machine):
    run, command = busy(machine)
    found = document(machine)
    first, second = found["gpus"]
    (lease,) = found["leases"]
    assert first["uuid"] == uuid(0) and first["gpu"] == "0"
    assert first["promised_bytes"] == 8 << 30 and first["foreign_bytes"] == 5 << 30
    assert first["left_bytes"] == (139 << 30) - (512 << 20) - (13 << 30)
    assert first["utilization_percent"] == 35 and first["leases"] == [lease["id"]]
    users = {process["pid"]: process for process in first["processes"]}
    assert users[command]["lease"] == lease["id"] and users[command]["command"] == "sleep 60"
    assert users[os.getpid()]["lease"] is None and users[os.getpid()]["used_bytes"] == 5 << 30
    assert lease["used_bytes"] == 3 << 30 and lease["pid"] == run
    assert second["promised_bytes"] == 0 and second["leases"] == [] and not second["whole"]
    assert found["driver"] == {"works": True, "version": "550.54.15", "cuda": "12.4", "trouble": None}


@pytest.mark.parametrize(
    "script",
    [
        "",
        "error nvmlInit_v2 18\n",
        gpus(1, {0: "  lost\n"}),
        "gpu GPU-1000aaaa\n",
        "garbage 7 60\n" + gpus(4),
    ],
    ids=["none", "mismatch", "lost", "bare", "garbage"],
)
def test_json_is_whole_on_machines_that_are_not(machine: Machine, script: str):
    machine.set(script)
    document(machine)
    machine.ok("status", "--prometheus")


def test_json_of_a_bad_directory_says_so(machine: Machine):
    machine.leases.write_text("a file")
    assert str(machine.leases) in document(machine)["lease_directory"]["trouble"]


def test_mig_instances_stand_for_their_gpu(machine: Machine):
    instance = "MIG-11111111-2222-3333-4444-555555555555"
    machine.set(gpus(1, {0: f"  mig 7\ninstance {instance} 1 0\n  memory 20G 0 1G\n"}))
    (gpu,) = document(machine)["gpus"]
    assert (gpu["gpu"], gpu["uuid"], gpu["mig_instance_of"]) == ("0/0", instance, uuid(0))
    assert gpu["utilization_percent"] is None and gpu["memory"]["total_bytes"] == 20 << 30


def test_prometheus_format(machine: Machine):
    busy(machine)
    text = machine.ok("status", "--prometheus")
    assert text.endswith("\n")
    help_line = re.compile(r"# HELP ([a-z_]+) \S.*")
    type_line = re.compile(r"# TYPE ([a-z_]+) gauge")
    sample = re.compile(
        r'([a-z_]+)(?:\{([a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*)\})? (\S+)'
    )
    family, seen, values = "", set(), {}
    for line in text.splitlines():
        if line.startswith("# HELP"):
            family = help_line.fullmatch(line).group(1)  # type: ignore[union-attr]
            assert family not in seen  # A family of GPUs stands together.
            seen.add(family)
        elif line.startswith("#"):
            assert type_line.fullmatch(line).group(1) == family  # type: ignore[union-attr]
        else:
            match = sample.fullmatch(line)
            assert match is not None and match.group(1) == family, line
            values[match.group(1), match.group(2)] = float(match.group(3))
    labels = f'gpu="0",uuid="{uuid(0)}",name="NVIDIA H200"'
    assert values["innkeeper_gpu_promised_bytes", labels] == 8 << 30
    assert values["innkeeper_gpu_foreign_bytes", labels] == 5 << 30
    assert values["innkeeper_gpu_utilization_ratio", labels] == 0.35
    assert values["innkeeper_driver_up", None] == 1


def test_a_name_with_quotes_is_escaped(machine: Machine):
    machine.set(gpus(1, {0: '  name say "hi" \\ there\n'}))
    assert 'name="say \\"hi\\" \\\\ there"' in machine.ok("status", "--prometheus")
    assert document(machine)["gpus"][0]["name"] == 'say "hi" \\ there'


def test_the_table_shows_holders_and_strangers(machine: Machine):
    busy(machine)
    text = machine.ok("status")
    row = next(line for line in text.splitlines() if uuid(0) in line)
    assert row.split()[:4] == ["0", "NVIDIA", "H200", "35%"]
    assert {"8.0", "5.0", "125.5"} <= set(row.split())  # Promised, foreign and free bytes.
    assert re.search(r"sleep 60", text) and "foreign" in text
    assert "\033" not in text


def test_nothing_is_left_of_a_gpu_that_is_leased_whole(machine: Machine):
    machine.start("run", "--mem", "1G", "--exclusive", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    first, second = document(machine)["gpus"]
    assert (first["whole"], first["left_bytes"]) == (True, 0)
    assert (second["whole"], second["left_bytes"]) == (False, (139 << 30) - (512 << 20))
    row = next(line for line in machine.ok("status").splitlines() if uuid(0) in line)
    assert re.search(r" 138\.5 +- +0\.0 ", row)  # Promised, foreign and free bytes.
    samples = [line for line in machine.ok("status", "--prometheus").splitlines() if uuid(0) in line]
    assert [line.split()[-1] for line in samples if line.startswith("innkeeper_gpu_left_bytes")] == ["0"]


def test_a_process_in_a_part_of_a_lease_is_the_parts(machine: Machine):
    machine.start("run", "--mem", "8G", "--", str(PROGRAM), "run", "--mem", "2G", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 2)
    (inner,) = (lease["pid"] for lease in machine.held() if lease["inside"])
    machine.set(gpus(2, {0: f"  memory 139G 512M 1G\n  process {inner} 1G\n"}))
    found = document(machine)
    (part,) = (lease["id"] for lease in found["leases"] if lease["inside"])
    (process,) = found["gpus"][0]["processes"]
    assert process["lease"] == part


def test_lost_gpus_are_shown(machine: Machine):
    machine.set(gpus(2, {1: "  lost\n"}))
    text = machine.ok("status")
    assert text.startswith("1 GPU,")
    (line,) = (line for line in text.splitlines() if line.startswith("lost: "))
    assert line.startswith("lost: a GPU (it does not say which): ") and "GPU is lost" in line


def on_terminal(machine: Machine, width: int, *words: str, **env: str) -> str:
    """Output on a terminal of this width."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = machine.start(*words, env=machine.env | env, stdin=other, stdout=other, stderr=other)
    os.close(other)
    chunks = []
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(main)
    assert process.wait(60) == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\033\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [1, 10, 20, 40, 60, 79, 80, 100, 132, 200])
def test_no_row_of_a_table_is_wider_than_the_terminal(machine: Machine, width: int):
    busy(machine)
    text = plain(on_terminal(machine, width, "status"))
    # A remark is no row: an ordinary user's own directory has one.
    for line in (line for line in text.splitlines()[1:] if not line.startswith("leases protect ")):
        assert len(line) <= width, (width, line)
    if width >= 40:
        assert "125.5" in text  # The free memory is the last column to be dropped.


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
    ids=["plain", "NO_COLOR", "empty NO_COLOR", "dumb"],
)
def test_colours_only_where_they_are_requested(machine: Machine, env: dict[str, str], coloured: bool):
    assert ("\033[" in on_terminal(machine, 100, "status", **env)) == coloured


@pytest.mark.parametrize(("lang", "is_block"), [("C.UTF-8", True), ("C", False)])
def test_block_characters_need_utf8(machine: Machine, lang: str, is_block: bool):
    text = machine.ok("status", env={"LANG": lang})
    assert ("\u2591" in text) == is_block and text.isascii() != is_block


def test_hostile_text_stays_printable(machine: Machine):
    job = machine.start("run", "--mem", "1G", "--", "sh", "-c", "\033[2J; sleep 60")
    wait_until(lambda: len(machine.held()) == 1)
    machine.set(gpus(1, {0: f"  memory 139G 512M 1G\n  process {job.pid} 1G\n"}))
    assert "\033" not in machine.ok("status") + machine.ok("lease", "list")


def test_json_says_what_this_process_was_given(machine: Machine):
    assert document(machine)["visible"] is None
    assert document(machine, CUDA_VISIBLE_DEVICES="1")["visible"] == [uuid(1)]

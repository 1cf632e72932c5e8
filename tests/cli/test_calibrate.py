"""calibrate: its measurements, its stored figures and its refusals. Links are those of a fake CUDA driver."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from innkeeper_program import FAKE, Machine, uuid, wait_until

HOST = "host"


def calibrated(machine: Machine, *words: str) -> dict:  # type: ignore[type-arg]
    return json.loads(machine.ok("calibrate", "--json", *words))


def test_calibrate_measures_and_keeps_its_figures(machine: Machine, tmp_path: Path):
    figures = calibrated(machine, "--size", "16MiB", "--disk", str(tmp_path))
    assert figures["schema"] == 1 and figures["size_bytes"] == 16 << 20
    host, disk = figures["host"], figures["disk"]
    assert host["threads"] == len(os.sched_getaffinity(0))
    assert 1e5 < host["copy_one_thread"] < 1e13 and 1e5 < host["copy_all_threads"] < 1e13
    assert disk["directory"] == str(tmp_path.resolve()) and isinstance(disk["direct"], bool)
    assert 1e3 < disk["write"] < 1e12 and 1e3 < disk["read"] < 1e12 and 0 < disk["latency_seconds"] < 5
    assert list(tmp_path.iterdir()) == []  # The program leaves nothing on the disk.
    kept = machine.directory / "cache" / "innkeeper" / "calibration.json"
    assert json.loads(kept.read_text()) | {"gpus": []} == figures
    assert calibrated(machine, "--show") == figures
    assert "GB/s" in machine.ok("calibrate", "--show")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--size", "1B"), 64),
        (("--size", "much"), 64),
        (("--size", "100T"), 64),
        (("--disk", "/no/such/directory"), 73),
        (("--show",), 73),
    ],
)
def test_calibrate_refuses(machine: Machine, words: tuple[str, ...], code: int):
    done = machine.run("calibrate", *words)
    assert (done.returncode, done.stdout) == (code, "") and done.stderr


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "host": 3, "disk": {}}']
)
def test_figures_that_are_none(machine: Machine, text: str):
    kept = machine.directory / "cache" / "innkeeper" / "calibration.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    done = machine.run("calibrate", "--show")
    assert done.returncode == 73 and str(kept) in done.stderr


def put_rates(machine: Machine, name: str, **changes: str) -> Path:
    """Writes the rates that a program has measured of a GPU."""
    rates = {
        "version": "1", "uuid": name, "name": "A GPU", "driver": "13000", "pytorch": "2.11.0",
        "link": "6.3e10", "time": "1700000000", "shared": "no", "slowed": "no", "precision": "bf16",
        "flops": "6.5e14", "bytes": "3e12", "in": "5.5e10", "out": "0",
    }  # fmt: skip
    file = machine.directory / "cache" / "innkeeper" / "gpus" / f"{name}.rates"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}: {value}\n" for key, value in (rates | changes).items()))
    return file


def test_what_programs_measured_is_shown_and_cleared(machine: Machine):
    first, second = put_rates(machine, "GPU-1"), put_rates(machine, "GPU-2", slowed="yes")
    put_rates(machine, "GPU-3").write_text("{")  # A damaged file counts as absent.
    shown = machine.ok("calibrate", "--show")
    assert "GPU-1: 650 TFLOP/s bf16, 3000 GB/s memory, 55 GB/s in, - GB/s out" in shown
    assert "slowed then: to be measured again" in shown and "GPU-3" not in shown
    assert [gpu["uuid"] for gpu in calibrated(machine, "--show")["gpus"]] == ["GPU-1", "GPU-2"]
    assert "3 GPUs" in machine.ok("calibrate", "--clear")
    assert not first.exists() and not second.exists()
    assert machine.run("calibrate", "--show").returncode == 73


def test_clearing_removes_the_figures_too(machine: Machine, tmp_path: Path):
    calibrated(machine, "--size", "16MiB", "--disk", str(tmp_path))
    assert calibrated(machine, "--clear") == {"figures": True, "gpus": 0}
    assert calibrated(machine, "--clear") == {"figures": False, "gpus": 0}
    assert machine.run("calibrate", "--clear", "--show").returncode == 64


def links(machine: Machine, **env: str) -> dict:  # type: ignore[type-arg]
    """Figures of a machine that has the fake CUDA driver, with no lease left."""
    driver = {
        "LD_LIBRARY_PATH": str(FAKE.parent),
        "INNKEEPER_FAKE_CUDA": f"{uuid(1)},{uuid(0)}",  # An order that differs from the library's.
    }
    words = ("calibrate", "--json", "--size", "16MiB", "--disk", str(machine.directory), "--python", "true")
    figures = json.loads(machine.ok(*words, env=driver | env))
    assert not any(lease["job"] == "calibrate" for lease in machine.held())
    return figures


def rates(figures: dict) -> dict[tuple[str, str], float]:  # type: ignore[type-arg]
    return {(link["from"], link["to"]): link["rate"] for link in figures["links"]}


# Duration of the fake driver's copies: these seconds, and this many bytes a second.
LATENCY, IN, OUT, PEER, BY_HOST = 10e-6, 50e9, 40e9, 200e9, 20e9


def seen(rate: float) -> object:
    size = 16 << 20
    return pytest.approx(size / (LATENCY + size / rate), rel=1e-3)


def test_links_to_the_host_and_between_gpus(machine: Machine):
    figures = links(machine, INNKEEPER_FAKE_CUDA_PEERS="1")
    assert figures["links_left_out"] == []
    assert rates(figures) == {
        (HOST, uuid(0)): seen(IN),
        (HOST, uuid(1)): seen(IN),
        (uuid(0), HOST): seen(OUT),
        (uuid(1), HOST): seen(OUT),
        (uuid(0), uuid(1)): seen(PEER),
        (uuid(1), uuid(0)): seen(PEER),
    }
    for link in figures["links"]:
        assert link["direct"] is True and link["latency_seconds"] == pytest.approx(LATENCY, rel=0.05)
    text = machine.ok("calibrate", "--show")
    assert f"link         {HOST} to {uuid(0)}: " in text and "latency 10 us\n" in text


def test_gpus_that_do_not_reach_each_other(machine: Machine):
    figures = links(machine)
    assert rates(figures)[uuid(0), uuid(1)] == seen(BY_HOST)
    between = [link for link in figures["links"] if HOST not in (link["from"], link["to"])]
    assert len(between) == 2 and not any(link["direct"] for link in between)
    assert "(by way of the host)" in machine.ok("calibrate", "--show")


def test_a_gpu_that_is_leased_whole_is_left_alone(machine: Machine):
    machine.start("run", "--", "sleep", "60")  # GPU 0
    wait_until(lambda: len(machine.held()) == 1)
    figures = links(machine)
    assert set(rates(figures)) == {(HOST, uuid(1)), (uuid(1), HOST)}
    (why,) = figures["links_left_out"]
    assert why == f"{uuid(0)}: 1.0 GiB of it cannot be leased now; innkeeper status says why"
    assert f"not measured {why}" in machine.ok("calibrate", "--show")


def test_only_gpus_that_were_given_are_measured(machine: Machine):
    figures = links(machine, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert set(rates(figures)) == {(HOST, uuid(1)), (uuid(1), HOST)}
    assert figures["links_left_out"] == []


def test_a_gpu_that_cuda_does_not_show(machine: Machine):
    figures = links(machine, INNKEEPER_FAKE_CUDA=uuid(0))
    assert set(rates(figures)) == {(HOST, uuid(0)), (uuid(0), HOST)}
    assert figures["links_left_out"] == [f"{uuid(1)}: CUDA does not show it to this process"]


@pytest.mark.parametrize(
    "function",
    [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuEventCreate",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuEventRecord",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuEventSynchronize",
        "cuEventElapsedTime",
        "cuDeviceCanAccessPeer",
        "cuCtxEnablePeerAccess",
        "cuMemcpyPeerAsync",
    ],
)
def test_a_driver_that_fails_costs_the_links_alone(machine: Machine, function: str):
    # The fake reports unreleased memory on standard error; links() refuses that.
    figures = links(machine, INNKEEPER_FAKE_CUDA_ERROR=f"{function} 2", INNKEEPER_FAKE_CUDA_PEERS="1")
    assert figures["links"] == [] and figures["host"]["copy_one_thread"] > 0
    (why,) = figures["links_left_out"]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in why


def test_no_gpu_and_no_cuda_driver(machine: Machine):
    machine.set("driver 550.54.15\n")
    figures = calibrated(machine, "--size", "16MiB", "--disk", str(machine.directory))
    assert figures["links"] == [] and figures["links_left_out"] == ["no GPU: the driver sees none"]


def test_figures_that_were_kept_without_links_are_shown(machine: Machine):
    calibrated(machine, "--size", "16MiB", "--disk", str(machine.directory))
    kept = machine.directory / "cache" / "innkeeper" / "calibration.json"
    figures = json.loads(kept.read_text())
    del figures["links"], figures["links_left_out"]
    kept.write_text(json.dumps(figures))
    assert "GB/s" in machine.ok("calibrate", "--show")


def python(machine: Machine, *lines: str) -> str:
    """A program that stands in for Python when the program measures GPUs."""
    file = machine.directory / "python"
    file.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    file.chmod(0o755)
    return str(file)


def calibrated_by(machine: Machine, program: str) -> dict:  # type: ignore[type-arg]
    words = ("--size", "16MiB", "--disk", str(machine.directory), "--python", program)
    return calibrated(machine, *words)


def test_pytorch_measures_the_gpus_that_are_leased(machine: Machine):
    kept = put_rates(machine, uuid(0))
    new = machine.directory / "new"
    kept.rename(new)
    program = python(
        machine,
        f'echo "$CUDA_VISIBLE_DEVICES" "$@" "${{INNKEEPER_NODES-none}}" > {machine.directory}/asked',
        f"cp {new} {kept}",
    )
    figures = calibrated_by(machine, program)
    assert figures["gpus_left_out"] == [] and [gpu["uuid"] for gpu in figures["gpus"]] == [uuid(0)]
    asked = (machine.directory / "asked").read_text().split()
    assert asked == [f"{uuid(0)},{uuid(1)}", "-m", "innkeeper.measure_gpus", "none"]
    assert f"GPU          {uuid(0)}: 650 TFLOP/s bf16" in machine.ok("calibrate", "--show")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["echo first >&2", "echo No module named innkeeper >&2", "exit 1"], "No module named innkeeper"),
        (["exit 1"], "it failed and said nothing"),
        (["kill -9 $$"], "it failed and said nothing"),
    ],
)
def test_gpus_that_pytorch_did_not_measure(machine: Machine, lines: list[str], why: str):
    program = python(machine, *lines)
    assert calibrated_by(machine, program)["gpus_left_out"] == [f"{program}: {why}"]
    assert f"not measured {program}: {why}" in machine.ok("calibrate", "--show")


def test_there_is_no_such_python(machine: Machine):
    (why,) = calibrated_by(machine, "/no/python")["gpus_left_out"]
    assert why == "/no/python: No such file or directory"


def test_bytes_that_are_no_text(machine: Machine):
    program = python(machine, r"printf 'caf\351 \033[2Jbroke \n  \n' >&2", "exit 1")
    assert calibrated_by(machine, program)["gpus_left_out"] == [rf"{program}: caf\xe9 \x1b[2Jbroke"]
    file = put_rates(machine, uuid(0))
    file.write_bytes(file.read_bytes().replace(b"A GPU", b"\xe9"))
    assert [gpu["name"] for gpu in calibrated(machine, "--show")["gpus"]] == ["\ufffd"]


@pytest.mark.parametrize(
    "lines",
    [["exec 2>&-", "sleep 1"], ["sleep 120 &"], ["head -c 300000000 /dev/zero >&2"]],
    ids=["it closes standard error and goes on", "it leaves a daemon", "it says much"],
)
def test_a_python_that_is_odd_has_measured(machine: Machine, lines: list[str]):
    begun = time.monotonic()
    assert calibrated_by(machine, python(machine, *lines))["gpus_left_out"] == []
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_does_not_measure_on_without_its_lease(machine: Machine, number: signal.Signals):
    child = machine.directory / "child"
    program = python(machine, f"echo $$ > {child}.draft", f"mv {child}.draft {child}", "exec sleep 120")
    words = ("calibrate", "--size", "16MiB", "--disk", str(machine.directory), "--python", program)
    with machine.start(*words) as running:
        wait_until(child.exists)
        running.send_signal(number)
        running.wait()
    wait_until(lambda: not Path(f"/proc/{child.read_text().strip()}").exists())
    assert not any(lease["job"] == "calibrate" for lease in machine.held())

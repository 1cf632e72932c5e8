"""A disk to fill: `small_disk` is a fixture, which a test module names in its `__all__`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from innkeeper_program import Machine


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    """A file system of one MiB. Tests that need it are skipped where none can be mounted."""
    directory = machine.directory / "disk"
    directory.mkdir()
    if machine.command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    yield directory
    machine.command("umount", "-l", directory, check=True)


def fill(directory: Path) -> Path:
    """Leaves no byte free."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler

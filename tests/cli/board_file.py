"""Files in the lease directory as running engines leave them for `innkeeper top`."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path


def fnv1a(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Board:
    """Files as publishers leave them; each is locked until it is closed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: list[int] = []

    def add(self, pid: int, command: str, nodes: str, pidns: int | None = None) -> None:
        namespace = Path("/proc/self/ns/pid").stat().st_ino if pidns is None else pidns
        body = f"pid={pid}\npidns={namespace}\ncommand={command}\n{nodes}".encode()
        path = self.directory / f"r{len(self.files):016x}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.files.append(fd)
        os.write(fd, f"innkeeper-board 1 {len(body)} {fnv1a(body):016x}\n".encode() + body)
        whole = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)

    def close(self) -> None:
        for fd in self.files:
            os.close(fd)

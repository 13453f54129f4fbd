#!/usr/bin/env python3
"""Measures how long a daemon takes from exec to ready, with states to take over and with none.

usage: outlive_bench.py [--build DIR] [--states N] [--mib N] [--rounds N] [--json]

It plays the keeper itself: it holds what stickyd asks it to keep, kills the daemon with SIGKILL and
starts the next one with that, in turns with one that has nothing to take over. Prints milliseconds,
medians of the rounds. The states are sparse files of zeros, which cost as much memory as any.
"""

import argparse
import array
import json
import os
import pathlib
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

FDS_MAX = 253
READY_S = 60


class Daemon:
    """stickyd, and what it has had kept: a list of (name, descriptor)."""

    def __init__(self, build, folder):
        self.program = build / "bin" / "stickyd"
        self.folder = folder
        self.kept = []
        self.process = None
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(READY_S)

    def start(self):
        """Milliseconds from exec to READY=1."""
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self.become_daemon()
        self.process = pid
        while b"READY=1" not in self.read():
            pass
        return (time.monotonic() - began) * 1000

    def become_daemon(self):
        # Out of the way first, so that none is overwritten before it is copied.
        high = [os.dup(fd) for _, fd in self.kept]
        first = 3 + len(self.kept)
        high = [fd if fd >= first else os.dup2(fd, first + 1000 + i) for i, fd in enumerate(high)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i, inheritable=True)
        environment = dict(os.environ, NOTIFY_SOCKET=str(self.folder / "notify"), FDSTORE="4096")
        if self.kept:
            environment.update(LISTEN_FDS=str(len(self.kept)), LISTEN_PID=str(os.getpid()),
                               LISTEN_FDNAMES=":".join(name for name, _ in self.kept))
        os.execve(self.program, [self.program, "--socket", self.folder / "s.sock", "--log-level",
                                 "error"], environment)

    def read(self):
        """One message; what it says is done."""
        text, control, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4 * FDS_MAX))
        fds = array.array("i")
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
        name = next((line[7:].decode() for line in text.split(b"\n")
                     if line.startswith(b"FDNAME=")), None)
        if b"FDSTORE=1" in text.split(b"\n"):
            self.kept += [(name, fd) for fd in fds]
            return text
        for fd in fds:
            os.close(fd)
        if b"FDSTOREREMOVE=1" in text.split(b"\n"):
            for _, fd in [one for one in self.kept if one[0] == name]:
                os.close(fd)
            self.kept = [one for one in self.kept if one[0] != name]
        return text

    def read_until(self, count):
        while len(self.kept) < count:
            self.read()

    def kill(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def write_model(folder, name, size_bytes):
    header = json.dumps({"a": {"dtype": "U8", "shape": [size_bytes],
                               "data_offsets": [0, size_bytes]}}).encode()
    with open(folder / f"{name}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size_bytes)
    template = folder / f"{name}.yaml"
    template.write_text(f"name: {name}\nsource:\n  path: {name}.safetensors\n", encoding="utf-8")
    return template


def load(build, daemon, count, size_bytes):
    for i in range(count):
        template = write_model(daemon.folder, f"s{i}", size_bytes)
        subprocess.run([build / "bin" / "stickyctl", "--socket", daemon.folder / "s.sock", "load",
                        template, "--wait"], check=True, capture_output=True)
        template.with_suffix(".safetensors").unlink()
        # Its socket, and of each state the manifest, the arena and the record.
        daemon.read_until(1 + 3 * (i + 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1] / "build" / "release")
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    times = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(prefix="sticky-") as name:
        folders = {kind: pathlib.Path(name) / kind for kind in times}
        for folder in folders.values():
            folder.mkdir(mode=0o700)
        daemons = {kind: Daemon(arguments.build, folder) for kind, folder in folders.items()}
        for daemon in daemons.values():
            daemon.start()
        load(arguments.build, daemons["with"], arguments.states, arguments.mib << 20)
        for _ in range(arguments.rounds):
            for kind, daemon in daemons.items():
                daemon.kill()
                times[kind].append(daemon.start())
        for daemon in daemons.values():
            daemon.kill()
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    result = {"states": arguments.states, "mib": arguments.mib, "rounds": arguments.rounds,
              "with_ms": medians["with"], "without_ms": medians["without"],
              "more_ms": medians["with"] - medians["without"]}
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"exec to ready, {arguments.states} states of {arguments.mib} MiB to take over: "
              f"{result['with_ms']:.1f} ms; none: {result['without_ms']:.1f} ms; "
              f"more: {result['more_ms']:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())

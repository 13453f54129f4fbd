#!/usr/bin/env python3
"""Measures what attaching costs on a node that is used: with many states, with many live leases,
and while a state is being loaded.

usage: node_attach_bench.py [--build DIR] [--states N] [--leases N] [--rounds N] [--load-mib N]
                            [--load-rounds N] [--json]

First: four daemons (one state or N, idle or with N live leases), all pinned to one core with
attach_bench, which attaches to each in turns. Then: one daemon, nothing pinned, in turns quiet and
while it loads another state; the p99 of each, medians of the rounds. A round in which the load
ended before the attaches did is not counted.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

CORE = 0
TENSOR_COUNT = 272
WAIT_S = 120


class Daemon:
    """A stickyd in a folder of its own, which ends with the block."""

    def __init__(self, build, folder, pinned):
        self.build = build
        self.folder = folder
        self.socket = folder / "s"
        folder.mkdir(mode=0o700)
        command = [build / "bin" / "stickyd", "--socket", self.socket, "--log-level", "error"]
        self.process = subprocess.Popen(["taskset", "-c", str(CORE)] * pinned + command)
        deadline = time.monotonic() + WAIT_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not listen at {self.socket}")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ctl(self, *arguments):
        command = [self.build / "bin" / "stickyctl", "--socket", self.socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def load(self, name, model, wait=True):
        template = self.folder / f"{name}.yaml"
        template.write_text(f"name: {name}\nsource:\n  path: {model}\n", encoding="utf-8")
        self.ctl("load", template, *(["--wait"] if wait else []))

    def is_loading(self, name):
        return json.loads(self.ctl("--json", "show", name))["state"]["phase"] != "ready"


def write_model(path, tensor_count, tensor_bytes):
    """A safetensors file of zeros, without a hole, so that the page cache holds it."""
    header = json.dumps({f"model.layers.{i}.weight":
                         {"dtype": "U8", "shape": [tensor_bytes],
                          "data_offsets": [i * tensor_bytes, (i + 1) * tensor_bytes]}
                         for i in range(tensor_count)}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(tensor_count):
            file.write(bytes(tensor_bytes))
    return path


def attach_bench(build, rounds, core, sockets):
    sockets = [part for path in sockets for part in ("--socket", path)]
    command = [build / "bench" / "attach_bench", "--json", "--rounds", str(rounds), "--core",
               str(core), "--state", "bench", *sockets]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {key: row["value"] for key, row in found.items() if key != "bench"}


def measure_used(build, folder, arguments):
    """Ratios to the bare round trip, by daemon."""
    import stickyinvoc  # its path is known now

    kinds = {f"{states} states, {leases} leases": (states, leases)
             for leases in (0, arguments.leases) for states in (1, arguments.states)}
    model = write_model(folder / "small.safetensors", TENSOR_COUNT, 4096)
    with contextlib.ExitStack() as stack:
        daemons = {}
        for i, (kind, (states, leases)) in enumerate(kinds.items()):
            daemon = stack.enter_context(Daemon(build, folder / str(i), pinned=True))
            daemons[kind] = daemon
            for k in range(states):
                daemon.load("bench" if k == 0 else f"other-{k}", model)
            for k in range(leases):
                name = "bench" if k % states == 0 else f"other-{k % states}"
                stack.enter_context(stickyinvoc.attach(name, socket=str(daemon.socket)))
        found = attach_bench(build, arguments.rounds, CORE,
                             [daemon.socket for daemon in daemons.values()])
        return {kind: found[f"attach_to_detach {daemon.socket} / bare_round_trip"]
                for kind, daemon in daemons.items()}


def measure_loading(build, folder, arguments):
    """The p99 of attaching, in microseconds, without and with a load."""
    small = write_model(folder / "bench.safetensors", TENSOR_COUNT, 4096)
    large = write_model(folder / "large.safetensors", arguments.load_mib, 1 << 20)
    p99s = {"quiet": [], "loading": []}
    rounds = 1000
    with Daemon(build, folder / "loading", pinned=False) as daemon:
        daemon.load("bench", small)
        for _ in range(arguments.load_rounds):
            found = attach_bench(build, rounds, -1, [daemon.socket])
            p99s["quiet"].append(found["attach_to_detach p99"])
            daemon.load("large", large, wait=False)
            found = attach_bench(build, rounds, -1, [daemon.socket])
            if daemon.is_loading("large"):
                p99s["loading"].append(found["attach_to_detach p99"])
            while daemon.is_loading("large"):
                time.sleep(0.02)
            daemon.ctl("evict", "large", "--wait")
    if not p99s["loading"]:
        raise RuntimeError("every load ended before the attaches did; give a larger --load-mib")
    return {kind: (statistics.median(values), len(values)) for kind, values in p99s.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1] / "build" / "release")
    parser.add_argument("--states", type=int, default=64)
    parser.add_argument("--leases", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--load-mib", type=int, default=4096)
    parser.add_argument("--load-rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shim" / "python"))
    os.environ.setdefault("STICKYINVOC_LIBRARY", str(arguments.build / "lib" / "libstickyinvoc.so"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the leases
    with tempfile.TemporaryDirectory(prefix="sticky-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        ratios = measure_used(arguments.build, folder, arguments)
        loading = measure_loading(arguments.build, folder, arguments)
    result = {"attach / bare round trip": ratios,
              "largest / smallest": max(ratios.values()) / min(ratios.values()),
              "p99_quiet_us": loading["quiet"][0], "p99_loading_us": loading["loading"][0],
              "rounds_loading": loading["loading"][1],
              "p99 loading / quiet": loading["loading"][0] / loading["quiet"][0]}
    if arguments.json:
        print(json.dumps(result))
        return 0
    for kind, ratio in ratios.items():
        print(f"attach to detach / bare round trip, {kind}: {ratio:.2f} (must reach 5)")
    print(f"largest / smallest: {result['largest / smallest']:.2f} (must reach 1.3)")
    print(f"p99 of attach to detach: {result['p99_quiet_us']:.0f} us quiet, "
          f"{result['p99_loading_us']:.0f} us while loading ({result['rounds_loading']} rounds), "
          f"{result['p99 loading / quiet']:.1f} times as long (must reach 3)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

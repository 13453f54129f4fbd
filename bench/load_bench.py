#!/usr/bin/env python3
"""Measures loads of a model against the disk, the page cache, and other programs that load it.

usage: load_bench.py MODEL [--build DIR] [--rounds N] [--python PATH] [--nice N] [--only cold|warm]
                     [--cold-memory] [--json]

MODEL: a folder of safetensors or GGUF files on a disk, say of tools/dev/make_model. Each round does
every way once, in turns, another one first each time; what is printed are medians. A load is the
whole of `stickyctl load --wait`, with a daemon of its own. Cold: the files are written back and
dropped from the page cache before each, which is verified. Warm: they are in it, verified too.
A virtual machine may give free memory back to its host within seconds, and get it again slowly;
so before each way as much as the model takes is taken, touched and freed, unless --cold-memory.

fio is used when it is there. Peers are measured with safetensors files, when PATH has them:
  python3 -m venv --system-site-packages peers        (python3-torch of Debian serves)
  peers/bin/pip install --no-deps safetensors fastsafetensors runai-model-streamer humanize
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PEER = pathlib.Path(__file__).resolve().parent / "load_peer.py"
PEERS = ("safetensors", "fastsafetensors", "runai-model-streamer")
MODULES = {"runai-model-streamer": "runai_model_streamer"}
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
CACHESTAT = 451  # its number is the same on every architecture; Linux 6.5
COPY_THREADS_MOST, READS_LEAST, READS_MOST = 8, 16, 32  # as daemon/load/reading.cc


def cached_share(paths):
    """Of the files' pages, those in the page cache; None when the kernel does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    cached = pages = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        counts = (ctypes.c_uint64 * 5)()
        whole = (ctypes.c_uint64 * 2)(0, 0)
        told = libc.syscall(CACHESTAT, fd, whole, counts, 0)
        pages += -(-os.fstat(fd).st_size // PAGE_BYTES)
        os.close(fd)
        if told != 0:
            return None
        cached += counts[0]
    return cached / pages


def make_cold(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    share = cached_share(paths)
    if share is not None and share > 0.01:
        sys.exit(f"load_bench: {share:.0%} of the files stay in the page cache; who has them open?")


def make_warm(paths):
    for _ in range(3):
        subprocess.run(["cat", *paths], stdout=subprocess.DEVNULL, check=True)
        share = cached_share(paths)
        if share is None or share > 0.999:
            return
    sys.exit(f"load_bench: only {share:.0%} of the files fit into the page cache")


def make_memory_ready(size_bytes):
    pid = os.fork()
    if pid == 0:
        memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size_bytes, PAGE_BYTES):
            memory[at] = 1
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("load_bench: there is not enough memory")


def seconds_of(command):
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


class Daemon:
    def __init__(self, build, model):
        place = tempfile.TemporaryDirectory(prefix="sticky-")
        self.place, self.folder = place, pathlib.Path(place.name)
        self.template = self.folder / "m.yaml"
        self.template.write_text(f"name: m\nsource: {{path: {model}}}\ndtype: bf16\n",
                                 encoding="utf-8")
        socket = self.folder / "s.sock"
        self.control = [build / "bin" / "stickyctl", "--socket", socket]
        self.process = subprocess.Popen([build / "bin" / "stickyd", "--socket", socket,
                                         "--log-level", "error"])
        status = [*self.control, "status"]
        while subprocess.run(status, capture_output=True, check=False).returncode != 0:
            if self.process.poll() is not None:
                sys.exit("load_bench: stickyd has ended")
            time.sleep(0.05)

    def load(self):
        seconds = seconds_of([*self.control, "load", self.template, "--wait"])
        told = subprocess.run([*self.control, "show", "m", "--json"], capture_output=True,
                              check=True, text=True)
        self.huge_pages = json.loads(told.stdout)["state"]["huge_pages"]
        subprocess.run([*self.control, "evict", "m"], capture_output=True, check=True)
        return seconds

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.place.cleanup()


def with_dd(paths):
    return sum(seconds_of(["dd", f"if={path}", "of=/dev/null", "iflag=direct", "bs=8M"])
               for path in paths)


def with_fio(engine, jobs):
    """jobs: options for fio. Seconds that fio itself says it read for."""
    def run(paths):
        total = 0
        for path in paths:
            told = subprocess.run(
                ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read",
                 "--direct=1", f"--ioengine={engine}", "--output-format=json", *jobs],
                capture_output=True, check=True, text=True)
            total += json.loads(told.stdout[told.stdout.index("{"):])["jobs"][0]["read"]["runtime"]
        return total / 1000
    return run


def with_peer(python, way, threads):
    def run(paths):
        told = subprocess.run([python, "-B", PEER, way, str(threads), *paths], capture_output=True,
                              check=True, text=True)
        return float(told.stdout.split()[-1])
    return run


def peers_of(python):
    return [way for way in PEERS if subprocess.run(
        [python, "-c", f"import torch, {MODULES.get(way, way)}"], capture_output=True,
        check=False).returncode == 0]


def ways(kind, daemon, arguments, all_safetensors):
    """By name: what to time, given the paths of the weight files."""
    cpus = os.cpu_count()
    threads = (min(max(cpus, READS_LEAST), READS_MOST) if kind == "cold"
               else min(cpus, COPY_THREADS_MOST))
    out = {"sticky": lambda _: daemon.load()}
    if kind == "cold":
        out["dd direct"] = with_dd
        if shutil.which("fio"):
            out["fio direct io_uring 32"] = with_fio("io_uring", ["--iodepth=32", "--bs=1M"])
    else:
        out["pread into memfd"] = with_peer(sys.executable, "memfd", threads)
    out["cat"] = lambda paths: seconds_of(["cat", *paths])
    if all_safetensors:
        for way in peers_of(arguments.python):
            out[way] = with_peer(arguments.python, way, threads)
    return out


def measure(kind, daemon, paths, arguments):
    chosen = ways(kind, daemon, arguments, all(path.suffix == ".safetensors" for path in paths))
    times = {way: [] for way in chosen}
    prepare = make_cold if kind == "cold" else make_warm
    for number in range(-1, arguments.rounds):  # the first does not count
        order = list(chosen)
        shift = number % len(order)
        for way in order[shift:] + order[:shift]:
            prepare(paths)
            if not arguments.cold_memory:
                make_memory_ready(sum(path.stat().st_size for path in paths) * 9 // 8)
            seconds = chosen[way](paths)
            if number >= 0:
                times[way].append(seconds)
    return times


def summary(kind, times, size_bytes):
    own = times["sticky"]
    rows = {}
    for way, seconds in times.items():
        rows[way] = {"seconds": statistics.median(seconds), "all": seconds,
                     "mb_per_s": size_bytes / statistics.median(seconds) / 1e6,
                     # Of sticky's rate to this one's: of the medians, and of each round's.
                     "ratio": statistics.median(seconds) / statistics.median(own),
                     "ratio_in_turns": statistics.median(
                         [other / mine for other, mine in zip(seconds, own)])}
    return {"kind": kind, "size_bytes": size_bytes, "ways": rows}


def print_table(result, rounds):
    print(f"{result['kind']}, {result['size_bytes'] / 1e9:.2f} GB, medians of {rounds} rounds")
    print(f"{'way':<26}{'seconds':>9}{'MB/s':>8}{'sticky / it':>13}{'in turns':>10}")
    for way, row in result["ways"].items():
        print(f"{way:<26}{row['seconds']:>9.2f}{row['mb_per_s']:>8.0f}{row['ratio']:>13.2f}"
              f"{row['ratio_in_turns']:>10.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1] / "build" / "release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", default=sys.executable, help="one that has the peers")
    parser.add_argument("--nice", type=int, default=10, help="of everything: a loader has 10")
    parser.add_argument("--only", choices=("cold", "warm"))
    parser.add_argument("--cold-memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.nice(arguments.nice)
    model = arguments.model.resolve()
    paths = sorted(path for path in model.iterdir() if path.suffix in (".safetensors", ".gguf"))
    if not paths:
        sys.exit(f"load_bench: no .safetensors or .gguf in {model}")
    size_bytes = sum(path.stat().st_size for path in paths)
    daemon = Daemon(arguments.build, model)
    results = []
    try:
        for kind in ("cold", "warm") if arguments.only is None else (arguments.only,):
            results.append(summary(kind, measure(kind, daemon, paths, arguments), size_bytes))
            results[-1]["huge_pages"] = daemon.huge_pages
            if not arguments.json:
                print_table(results[-1], arguments.rounds)
    finally:
        daemon.end()
    if arguments.json:
        print(json.dumps({"rounds": arguments.rounds, "cpus": os.cpu_count(),
                          "kernel": os.uname().release, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

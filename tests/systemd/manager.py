"""A service manager of a test's own: `systemd --user`, run as root in process, mount and control
groups of its own, so that units can be tried where PID 1 is no systemd, and everything is gone when
the test ends.

A test program calls Main(UNIT_FOLDER). It runs itself once more inside; the outer half waits, and
removes the control groups. Where such a manager cannot be run the exit status is 77, with a reason.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

SYSTEMD = pathlib.Path("/usr/lib/systemd/systemd")
HIERARCHIES = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]
SKIPPED = 77
DEADLINE_S = 30
FOLDER = "STICKY_SYSTEMD_TEST_FOLDER"  # set inside


def why_not():
    """Why there can be no manager here, or nothing."""
    if os.geteuid() != 0:
        return "only root can make the namespaces and the control group that a manager needs"
    for program in (SYSTEMD, "systemctl", "unshare"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None if hierarchies() else "there is no control group hierarchy of systemd's"


def hierarchies():
    """Those that systemd may take for its own. Left in a root group, a manager that is root would
    move every process of the machine into one of its own."""
    found = []
    for name in map(pathlib.Path, HIERARCHIES):
        kind = subprocess.run(["stat", "-f", "-c", "%T", name], capture_output=True, text=True,
                              check=False).stdout.strip()
        if (name / "cgroup.procs").exists() and (kind == "cgroup2fs" or name.name == "systemd"):
            found.append(name)
    return found


def move_to_group(name):
    for hierarchy in hierarchies():
        (hierarchy / name).mkdir()
        (hierarchy / name / "cgroup.procs").write_text(str(os.getpid()))


def still_in_a_root_group():
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    return [line for line in lines
            if line.endswith(":/") and (line.startswith("0:") or ":name=systemd:" in line)]


def remove_groups(name):
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            try:
                os.rmdir(folder)
            except OSError as error:
                print(f"left behind: {folder}: {error}", file=sys.stderr)


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.01)


class Manager:
    """The manager that runs inside; `folder` has its units/, run/ and log."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.units = self.folder / "units"
        self.runtime = self.folder / "run"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),  # no config of this machine's user is read
            "XDG_RUNTIME_DIR": str(self.runtime),
            "SYSTEMD_UNIT_PATH": f"{self.units}:/usr/lib/systemd/user",
            "SYSTEMD_LOG_TARGET": "console",
            "SYSTEMD_LOG_COLOR": "0",
        }

    def start(self, units):
        self.units.mkdir()
        self.runtime.mkdir(mode=0o700)
        # What the distribution wants for people's sessions stays out.
        for folder in ("/usr/lib/systemd/user", "/etc/systemd/user"):
            for link in pathlib.Path(folder).glob("*.wants/*"):
                mask = self.units / link.name
                if not mask.is_symlink():
                    mask.symlink_to("/dev/null")
        for unit in units:
            shutil.copy(unit, self.units)
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [SYSTEMD, "--user", "--unit=basic.target"], env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.try_ctl("is-active", "--quiet", "basic.target").returncode == 0,
                   "systemd --user is up; its log:\n" + self.log())

    def log(self):
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def run(self, *command, **options):
        return subprocess.run([str(word) for word in command], env=self.environment,
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              **options)

    def try_ctl(self, *words):
        return self.run("systemctl", "--user", *words)

    def ctl(self, *words):
        done = self.try_ctl(*words)
        if done.returncode != 0:
            raise AssertionError(f"systemctl --user {' '.join(words)}: {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}\n{self.log()}")
        return done.stdout.strip()

    def property(self, unit, name):
        return self.ctl("show", "-P", name, unit)

    def state(self, unit):
        return self.property(unit, "ActiveState")


def private_run():
    """An own /run, so that nothing of this machine is found there or changed; with what systemd as
    PID 1 puts there: a folder that says so, and what ProtectHome= and others mount over things."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    nothing = pathlib.Path("/run/systemd/inaccessible")
    for folder in (pathlib.Path("/run/systemd/system"), nothing / "dir"):
        folder.mkdir(parents=True)
    for name, kind in {"reg": stat.S_IFREG, "fifo": stat.S_IFIFO, "sock": stat.S_IFSOCK}.items():
        os.mknod(nothing / name, kind)


def inside():
    move_to_group(pathlib.Path(os.environ[FOLDER]).name)
    if still_in_a_root_group():
        print(f"skipped: still in a root control group: {still_in_a_root_group()}")
        return SKIPPED
    private_run()
    program = unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2, exit=False)
    return 0 if program.result.wasSuccessful() else 1


def main():
    if FOLDER in os.environ:
        sys.stdout.flush()
        os._exit(inside())  # as the namespace's first process: the kernel ends all others with it
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    folder = tempfile.mkdtemp(prefix="stk-sd-", dir="/tmp")
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc",
             "--kill-child=SIGKILL", sys.executable, "-B", *sys.argv],
            env={**os.environ, FOLDER: folder}, stdin=subprocess.DEVNULL, check=False)
    finally:
        remove_groups(pathlib.Path(folder).name)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(done.returncode)

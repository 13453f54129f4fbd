"""A stickyd for one class of Python tests, and stickyctl to speak with it."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

SOON_S = 60


class PythonDaemon:
    """A stickyd in a new folder: .folder, .socket in it, .log of it. End it with stop()."""

    def __init__(self, build, memory):
        self.build = pathlib.Path(build)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stk"))
        self.socket = self.folder / "s"
        self.log = self.folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.build / "bin/stickyd", "--socket", self.socket, "--memory", memory],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + SOON_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("stickyd does not listen:\n" + self.log.read_text())
            os.sched_yield()

    def stop(self):
        self.process.terminate()
        self.process.wait(SOON_S)
        shutil.rmtree(self.folder)

    def stickyctl(self, *words, timeout_s=SOON_S):
        """What it printed; an AssertionError with its words unless it exits with 0."""
        done = subprocess.run(
            [self.build / "bin/stickyctl", "--socket", self.socket, *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def load(self, name, text):
        """Builds the state that a template describes: `text` is what follows its name."""
        template = self.folder / f"{name}.yaml"
        template.write_text(f"name: {name}\n{text}", encoding="utf-8")
        self.stickyctl("load", template, "--wait")

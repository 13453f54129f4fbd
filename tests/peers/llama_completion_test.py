"""An unmodified llama.cpp on a file state: llama-completion of tools/dev/fetch_llama, a real model.

Exits 77, saying why, when the program or the model cannot be had.

usage: llama_completion_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

BUILD = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
# pylint: disable=wrong-import-position
from fetched_python import SKIPPED
from python_daemon import SOON_S, PythonDaemon

BUILD_S = 3000
FILE = "model=weights/model.gguf"
WORDS = ["--no-conversation", "--temp", "0", "--threads", "2", "-n", "48", "-p", "Once upon a time"]


def fetched(tool):
    made = subprocess.run([ROOT / "tools/dev" / tool], capture_output=True, text=True,
                          timeout=BUILD_S, check=False)
    if made.returncode != 0:
        print("skipped: " + (made.stderr.strip() or "no reason given").splitlines()[-1])
        sys.exit(SKIPPED)
    return pathlib.Path(made.stdout.strip())


PROGRAM = fetched("fetch_llama")
MODEL = fetched("fetch_model")


def mapped_kib(pid):
    """KiB of the process' memory, by field, in mappings of the state's memory."""
    found = {}
    ours = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0]:
            ours = "/memfd:weights" in line
        elif ours and words[-1] == "kB":
            found[words[0]] = found.get(words[0], 0) + int(words[1])
    return found


class LlamaCompletion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = PythonDaemon(BUILD, "1GiB")
        cls.addClassCleanup(cls.daemon.stop)
        cls.daemon.load(
            "weights", f"source:\n  files:\n    - {{name: model.gguf, path: '{MODEL}'}}\n"
        )

    def leases(self):
        return json.loads(self.daemon.stickyctl("leases", "--json"))["leases"]

    def test_it_says_the_same_as_with_the_file(self):
        plain = subprocess.run([PROGRAM, "-m", MODEL, *WORDS], capture_output=True, text=True,
                               timeout=SOON_S, check=True).stdout
        lent = self.daemon.stickyctl("run", "--as-file", FILE, "--", PROGRAM, "-m", "{model}",
                                     *WORDS)
        self.assertEqual(lent, plain)
        self.assertGreater(len(plain), len("Once upon a time") + 40)

    def test_its_weights_are_the_nodes_pages_until_it_is_killed(self):
        command = [BUILD / "bin/stickyctl", "--socket", self.daemon.socket, "run", "--as-file",
                   FILE, "--", PROGRAM, "-m", "{model}", *WORDS, "-n", "-1", "--ignore-eos"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            while process.stdout.read(1) not in (b"u", b""):  # it has begun to say "Once upon"
                pass
            mapped = mapped_kib(process.pid)
            held = self.leases()
        finally:
            process.kill()
            process.wait(SOON_S)
            process.stdout.close()
        size_kib = MODEL.stat().st_size // 1024
        self.assertGreater(mapped["Rss:"], size_kib * 0.9)
        self.assertEqual(mapped["Anonymous:"], 0, mapped)  # nothing was copied
        self.assertEqual([lease["pid"] for lease in held], [process.pid])
        deadline = time.monotonic() + SOON_S
        while self.leases() and time.monotonic() < deadline:
            os.sched_yield()
        self.assertEqual(self.leases(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

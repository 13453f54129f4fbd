"""Files of a state in the hands of Python programs that know nothing of it: open(), numpy.memmap,
and the safetensors package, which maps the file whose path it is given.

The packages come with tools/dev/fetch_python. Exits 77, saying why, when they cannot be had.

usage: file_states_test.py BUILD_FOLDER
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

BUILD = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
from fetched_python import python_with_packages  # pylint: disable=wrong-import-position

MODEL = ROOT / "tests/data/golden/models/llama-bias/model.safetensors"
SOON_S = 60

# What a program of the user's may look like: each prints what it found in the file.
READ = """
    import hashlib, sys
    print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""
MEMMAP = """
    import hashlib, sys
    import numpy
    print(hashlib.sha256(numpy.memmap(sys.argv[1], mode="r")).hexdigest())
"""
TENSORS = """
    import hashlib, sys
    from safetensors import safe_open
    with safe_open(sys.argv[1], framework="numpy") as model:
        for name in sorted(model.keys()):
            tensor = model.get_tensor(name)
            print(name, tensor.dtype, tensor.shape, hashlib.sha256(tensor.tobytes()).hexdigest())
"""
# Whether all of the file is mapped from the node's memory, and KiB of it that were copied.
MAPPED = """
    import sys
    import numpy
    from safetensors import safe_open
    with safe_open(sys.argv[1], framework="numpy") as model:
        data = numpy.memmap(sys.argv[1], mode="r")
        data.sum()
        ours = False
        copied_kib = resident_kib = 0
        for line in open("/proc/self/smaps"):
            if "-" in line.split()[0]:
                ours = "memfd:" in line
            if ours and line.startswith("Anonymous:"):
                copied_kib += int(line.split()[1])
            if ours and line.startswith("Rss:"):
                resident_kib += int(line.split()[1])
        print(resident_kib * 1024 >= data.size, copied_kib)
"""


class FileStates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="stk"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.socket = cls.folder / "s"
        cls.python = python_with_packages()
        log = open(cls.folder / "log", "w", encoding="utf-8")
        cls.addClassCleanup(log.close)
        daemon = subprocess.Popen(
            [BUILD / "bin/stickyd", "--socket", cls.socket, "--memory", "1GiB"],
            stdout=log,
            stderr=log,
        )
        cls.addClassCleanup(daemon.wait, SOON_S)
        cls.addClassCleanup(daemon.terminate)
        deadline = time.monotonic() + SOON_S
        while not cls.socket.exists() and time.monotonic() < deadline:
            os.sched_yield()
        sha256 = hashlib.sha256(MODEL.read_bytes()).hexdigest()
        template = cls.folder / "model.yaml"
        template.write_text(
            f"name: model\nsource:\n  files: ['{MODEL}']\n  expect: {{sha256: {sha256}}}\n",
            encoding="utf-8",
        )
        cls.stickyctl("load", template, "--wait")

    @classmethod
    def stickyctl(cls, *words):
        done = subprocess.run(
            [BUILD / "bin/stickyctl", "--socket", cls.socket, *words],
            capture_output=True,
            text=True,
            timeout=SOON_S,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def lent(self, program):
        words = [self.python, "-c", textwrap.dedent(program), "{file}"]
        return self.stickyctl("run", "--as-file", f"file=model/{MODEL.name}", "--", *words)

    def plain(self, program):
        words = [self.python, "-c", textwrap.dedent(program), MODEL]
        return subprocess.run(
            words, capture_output=True, text=True, timeout=SOON_S, check=True
        ).stdout

    def test_open_reads_the_same_bytes(self):
        self.assertEqual(self.lent(READ), self.plain(READ))

    def test_numpy_memmap_maps_the_same_bytes(self):
        self.assertEqual(self.lent(MEMMAP), self.plain(MEMMAP))
        self.assertEqual(self.lent(MEMMAP), self.plain(READ))

    def test_safetensors_gives_the_same_tensors(self):
        tensors = self.lent(TENSORS)
        self.assertEqual(tensors, self.plain(TENSORS))
        self.assertIn("model.embed_tokens.weight float32", tensors)

    def test_the_index_of_the_documentation_finds_what_is_there(self):
        page = (ROOT / "docs/file-states.md").read_text(encoding="utf-8")
        for name, program in re.findall(r"^```python\n# (\w+\.py) (.*?)^```", page, re.M | re.S):
            (self.folder / name).write_text("# " + program, encoding="utf-8")
        (self.folder / "reference.txt").write_text("ACGTACGTTAGCCATGG\nACGTACGTTAGCCATGC\n")
        index = self.folder / "index.npy"
        subprocess.run(
            [self.python, self.folder / "build_index.py", self.folder / "reference.txt", index],
            timeout=SOON_S,
            check=True,
        )
        template = self.folder / "genome.yaml"
        template.write_text("name: genome\nsource: {files: [index.npy]}\n", encoding="utf-8")
        self.stickyctl("load", template, "--wait")

        command = [self.python, self.folder / "find.py", "{i}", "ACGTACGTTAGCCATGC", "A" * 16]
        found = self.stickyctl("run", "--as-file", "i=genome/index.npy", "--", *command)

        self.assertEqual(found, "ACGTACGTTAGCCATGC 0 17\n" + "A" * 16 + "\n")

    def test_what_is_mapped_is_not_copied(self):
        self.assertEqual(self.lent(MAPPED), "True 0\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

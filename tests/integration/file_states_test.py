"""Files of a state in the hands of Python programs that know nothing of it: open(), numpy.memmap,
and the safetensors package, which maps the file whose path it is given.

The packages come with tools/dev/fetch_python. Exits 77, saying why, when they cannot be had.

usage: file_states_test.py BUILD_FOLDER
"""

import hashlib
import pathlib
import re
import subprocess
import sys
import textwrap
import unittest

BUILD = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
# pylint: disable=wrong-import-position
from fetched_python import python_with_packages
from python_daemon import SOON_S, PythonDaemon

MODEL = ROOT / "tests/data/golden/models/llama-bias/model.safetensors"

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
        cls.python = python_with_packages()
        cls.daemon = PythonDaemon(BUILD, "1GiB")
        cls.addClassCleanup(cls.daemon.stop)
        cls.folder = cls.daemon.folder
        sha256 = hashlib.sha256(MODEL.read_bytes()).hexdigest()
        cls.daemon.load(
            "model", f"source:\n  files: ['{MODEL}']\n  expect: {{sha256: {sha256}}}\n"
        )

    def lent(self, program):
        words = [self.python, "-c", textwrap.dedent(program), "{file}"]
        return self.daemon.stickyctl("run", "--as-file", f"file=model/{MODEL.name}", "--", *words)

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
        self.daemon.load("genome", "source: {files: [index.npy]}\n")

        command = [self.python, self.folder / "find.py", "{i}", "ACGTACGTTAGCCATGC", "A" * 16]
        found = self.daemon.stickyctl("run", "--as-file", "i=genome/index.npy", "--", *command)

        self.assertEqual(found, "ACGTACGTTAGCCATGC 0 17\n" + "A" * 16 + "\n")

    def test_what_is_mapped_is_not_copied(self):
        self.assertEqual(self.lent(MAPPED), "True 0\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

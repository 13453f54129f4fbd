#!/usr/bin/python3
"""tools/dev/make_model writes models that a load takes, and the same bytes for the same wish."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

MAKE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev" / "make_model"
STICKYCTL = pathlib.Path(os.environ["STICKY_BUILD_DIR"]) / "bin" / "stickyctl"


class MakeModelTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="sticky-")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def make(self, name, *options, shape="tiny"):
        folder = self.place / name
        subprocess.run([MAKE, folder, "--shape", shape, *options], check=True)
        return folder

    def check(self, folder, dtype="bf16"):
        """What `stickyctl template check` says of it."""
        template = self.place / f"{folder.name}.yaml"
        template.write_text(f"name: m\nsource: {{path: {folder}}}\ndtype: {dtype}\n")
        told = subprocess.run([STICKYCTL, "template", "check", "--json", template], check=True,
                              capture_output=True, text=True)
        return json.loads(told.stdout)

    def bytes_of(self, folder):
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                   for path in folder.iterdir()}
        self.assertFalse([name for name in digests if name.endswith(".part")])
        return digests

    def tensors_of(self, folder):
        found = {}
        for path in sorted(folder.glob("*.safetensors")):
            raw = path.read_bytes()
            size = int.from_bytes(raw[:8], "little")
            for name, entry in json.loads(raw[8:8 + size]).items():
                if name != "__metadata__":
                    begin, end = (8 + size + at for at in entry["data_offsets"])
                    found[name] = raw[begin:end]
        return found

    def test_each_format_and_dtype_is_taken_as_a_language_model(self):
        for form, dtype in (("safetensors", "bf16"), ("safetensors", "f16"), ("safetensors", "f32"),
                            ("gguf", "bf16"), ("gguf", "f16"), ("gguf", "f32"), ("gguf", "q8_0"),
                            ("gguf", "q4_0"), ("gguf", "q4_1")):
            with self.subTest(form=form, dtype=dtype):
                folder = self.make(f"{form}-{dtype}", "--format", form, "--dtype", dtype)
                self.assertEqual(self.check(folder)["model"]["architecture"], "llama")

    def test_the_same_wish_gives_the_same_bytes_and_another_seed_others(self):
        for form in ("safetensors", "gguf"):
            first, again, other = (
                self.bytes_of(self.make(f"{form}-{name}", "--format", form, "--seed", seed))
                for name, seed in (("a", "1"), ("b", "1"), ("c", "2")))
            self.assertEqual(first, again)
            self.assertNotEqual(first, other)

    def test_shards_hold_the_same_tensors_as_one_file(self):
        one, three = self.make("one"), self.make("three", "--shards", "3")
        self.assertEqual(len(list(three.glob("*.safetensors"))), 3)
        self.assertEqual(self.tensors_of(one), self.tensors_of(three))
        self.assertEqual(self.check(three)["needed_bytes"], self.check(one)["needed_bytes"])

    def test_what_cannot_be_is_refused_and_leaves_no_model(self):
        for options in (["--dtype", "q4_0"], ["--shards", "0"], ["--shards", "1000"],
                        ["--format", "gguf", "--shards", "2"]):
            folder = self.place / "none"
            told = subprocess.run([MAKE, folder, "--shape", "tiny", *options], text=True,
                                  capture_output=True, check=False)
            self.assertNotEqual(told.returncode, 0, options)
            self.assertTrue(re.search("gguf|shard", told.stderr), told.stderr)
            self.assertFalse(folder.exists() and list(folder.iterdir()), options)


if __name__ == "__main__":
    unittest.main()

"""PyTorch and transformers on a state, with the real daemon: tensors and models whose weights are
the shared bytes, and the same tokens and logits as an ordinary load.

The packages come with tools/dev/fetch_python. Exits 77, saying why, when they cannot be had.

usage: torch_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

BUILD = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/data/golden"
sys.path.insert(0, str(ROOT / "tests/testing"))
# pylint: disable=wrong-import-position
from fetched_python import SKIPPED, python_with_packages
from python_daemon import SOON_S, PythonDaemon


def run_with_packages():
    """Goes on as the Python that has the packages, unless this is it."""
    python = python_with_packages()
    if sys.executable != python:
        os.execv(python, [python, "-B", *sys.argv])


run_with_packages()
# pylint: disable=wrong-import-position
import numpy
try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; install python3-torch")
    sys.exit(SKIPPED)
import safetensors.torch
import transformers

import stickyinvoc

transformers.logging.set_verbosity_error()


class TorchCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in ("STICKYINVOC_STATE", "STICKYINVOC_LEASE", "STICKYINVOC_BUILD"):
            os.environ.pop(name, None)
        cls.daemon = PythonDaemon(BUILD, "2GiB")
        cls.addClassCleanup(cls.daemon.stop)
        os.environ["STICKYINVOC_SOCKET"] = str(cls.daemon.socket)
        cls.folder = cls.daemon.folder

    @classmethod
    def load(cls, name, path, dtype):
        """Loads a model's files as the state `name`."""
        cls.daemon.load(name, f"dtype: {dtype}\nsource: {{path: '{path}'}}\n")


class Tensors(TorchCase):
    def test_every_dtype_is_read_in_place(self):
        arrays = {kind: numpy.arange(12).reshape(3, 4).astype(kind)
                  for kind in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}  # fmt: skip
        with stickyinvoc.build("dtypes") as b:
            b.add_all(arrays)
            b.add("bits", numpy.array([0x3F80, 0xC000], "uint16"), dtype="bfloat16")
            b.add("rounded", [1.0, 1.001, -3.5], dtype="bfloat16")
            b.array("filled", 3, "bfloat16")[:] = 7
            b.add("scalar", numpy.float32(2.5))
            b.add("empty", numpy.zeros((0, 3), "float32"))
        state = stickyinvoc.attach("dtypes")
        tensors = state.torch_tensors()

        self.assertEqual(set(tensors), {*arrays, "bits", "rounded", "filled", "scalar", "empty"})
        for name, array in arrays.items():
            with self.subTest(name):
                self.assertEqual(tensors[name].numpy().dtype, array.dtype)
                self.assertTrue((tensors[name].numpy() == array).all())
                self.assertEqual(tensors[name].data_ptr(), state.tensor(name).ctypes.data)
        self.assertEqual(tensors["bits"].dtype, torch.bfloat16)
        self.assertEqual(tensors["bits"].tolist(), [1.0, -2.0])
        self.assertEqual(tensors["rounded"].tolist(), [1.0, 1.0, -3.5])
        self.assertEqual(tensors["filled"].tolist(), [7.0] * 3)
        self.assertEqual(state.tensor("rounded").dtype.name, "bfloat16")
        self.assertEqual(tensors["scalar"].item(), 2.5)
        self.assertEqual(tensors["empty"].shape, (0, 3))
        self.assertIn("bits", tensors)
        self.assertNotIn("none", tensors)
        with self.assertRaises(KeyError):
            tensors["none"]

    def test_a_dtype_that_torch_does_not_have_is_refused(self):
        with stickyinvoc.build("unsigned") as b:
            b.add("x", numpy.array([1], "uint32"))
        tensors = stickyinvoc.attach("unsigned").torch_tensors()
        if hasattr(torch, "uint32"):
            self.assertEqual(tensors["x"].tolist(), [1])
        else:
            with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "has no u32"):
                tensors["x"]

    def test_a_tensor_keeps_the_attachment(self):
        with stickyinvoc.build("kept") as b:
            b.add("x", numpy.arange(10))
        with stickyinvoc.attach("kept") as state:
            part = state.torch_tensors()["x"][4:]
        self.assertEqual(part.tolist(), [4, 5, 6, 7, 8, 9])
        self.assertEqual(self.leases("kept"), 1)
        del part
        deadline = time.monotonic() + SOON_S
        while self.leases("kept") and time.monotonic() < deadline:
            os.sched_yield()
        self.assertEqual(self.leases("kept"), 0)

    def leases(self, name):
        text = subprocess.run([BUILD / "bin/stickyctl", "show", name], capture_output=True,
                              text=True, timeout=SOON_S, check=True).stdout  # fmt: skip
        return int(re.search(r"^leases: +(\d+)", text, re.M)[1])

    def test_writing_ends_the_writer_and_harms_nobody(self):
        with stickyinvoc.build("safe") as b:
            b.add("x", [1.0, 2.0])
        program = "import stickyinvoc as s; s.attach('safe').torch_tensors()['x'].add_(1)"
        done = subprocess.run([sys.executable, "-c", program], timeout=SOON_S, check=False)
        self.assertEqual(done.returncode, -signal.SIGSEGV)
        mine = stickyinvoc.attach("safe").torch_tensors()["x"].clone()
        self.assertEqual(mine.add_(1).tolist(), [2.0, 3.0])
        self.assertEqual(stickyinvoc.attach("safe").tensor("x").tolist(), [1.0, 2.0])


def greedy(model, ids, count):
    asked = torch.tensor([ids])
    with torch.no_grad():
        made = model.generate(asked, attention_mask=torch.ones_like(asked), do_sample=False,
                              max_new_tokens=count, eos_token_id=None)  # fmt: skip
    return made[0, len(ids) :].tolist()


class Models(TorchCase):
    def test_logits_and_tokens_are_those_of_the_reference(self):
        for name in ("llama-gqa-tied", "llama-mha-tied", "llama-bias", "llama3-scaled-untied"):
            self.load(name, GOLDEN / "models" / name, "f32")
            reference = safetensors.torch.load_file(
                GOLDEN / "models" / name / "reference.safetensors"
            )
            model = stickyinvoc.transformers.load(name)
            for prompt in ("short", "long"):
                with self.subTest(name=name, prompt=prompt):
                    ids = reference[f"{prompt}.input_ids"].tolist()
                    with torch.no_grad():
                        logits = model(torch.tensor([ids])).logits[0]
                    wanted = reference[f"{prompt}.logits"]
                    self.assertLess(float((logits - wanted).norm() / wanted.norm()), 1e-4)
                    self.assertEqual(
                        greedy(model, ids, 24), reference[f"{prompt}.greedy_ids"].tolist()
                    )

    def test_no_parameter_is_copied(self):
        self.load("in-place", GOLDEN / "models/llama-gqa-tied", "f32")
        state = stickyinvoc.attach("in-place")
        model = stickyinvoc.transformers.load(state)
        parameters = dict(model.named_parameters())
        self.assertGreater(len(parameters), 20)
        for name, parameter in parameters.items():
            self.assertEqual(parameter.data_ptr(), state.tensor(name).ctypes.data, name)
            self.assertFalse(parameter.requires_grad)
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)
        self.assertFalse(any(buffer.is_meta for buffer in model.buffers()))
        self.assertFalse(model.training)

    def test_a_bfloat16_state_is_as_an_ordinary_load_and_copies_vectors_alone(self):
        path = GOLDEN / "models/llama-gqa-tied"
        self.load("bf16", path, "bf16")
        state = stickyinvoc.attach("bf16")
        model = stickyinvoc.transformers.load(state)
        ordinary = transformers.AutoModelForCausalLM.from_pretrained(
            self.as_transformers_4(path), torch_dtype=torch.bfloat16
        )
        ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
        with torch.no_grad():
            self.assertTrue(torch.equal(model(ids).logits, ordinary(ids).logits))
        self.assertEqual(model.dtype, torch.bfloat16)
        for name, parameter in model.named_parameters():
            in_place = parameter.data_ptr() == state.tensor(name).ctypes.data
            self.assertEqual(in_place, parameter.dim() > 1, name)

    def as_transformers_4(self, path):
        """A copy of a model whose rotary parameters are spelled as transformers 4 reads them."""
        copy = self.folder / "ordinary"
        shutil.copytree(path, copy)
        config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
        (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return copy

    def test_a_state_of_a_gguf_file_gives_the_tokens_of_the_reference(self):
        path = os.environ.get("STICKY_SMOLLM2_GGUF")
        if not path:
            self.skipTest("STICKY_SMOLLM2_GGUF is not set; tools/dev/fetch_model prints its path")
        self.load("smollm2", path, "f32")
        model = stickyinvoc.transformers.load("smollm2")
        tokenizer = stickyinvoc.transformers.load_tokenizer("smollm2")
        rows = json.loads((GOLDEN / "smollm2/reference.json").read_text(encoding="utf-8"))["rows"]
        row = next(row for row in rows if row["kind"] == "plain")
        self.assertEqual(tokenizer(row["text"])["input_ids"], row["ids"])
        self.assertEqual(greedy(model, row["ids"], len(row["greedy_ids"])), row["greedy_ids"])

    def test_what_the_documentation_shows_runs(self):
        self.load("llama-8b", GOLDEN / "models/llama-gqa-tied", "bf16")
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        programs = re.findall(r"^```python\n# run with torch: .*?\n(.*?)^```", page, re.M | re.S)
        self.assertEqual(len(programs), 2)
        for program in programs:
            with self.subTest(program):
                subprocess.run([sys.executable, "-c", program], capture_output=True,
                               timeout=SOON_S, check=True)  # fmt: skip

    def test_a_model_keeps_the_attachment(self):
        self.load("held", GOLDEN / "models/llama-bias", "f32")
        state = stickyinvoc.attach("held")
        model = stickyinvoc.transformers.load(state)
        state.detach()
        self.assertEqual(len(greedy(model, [5, 6], 3)), 3)
        with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "options are for attaching"):
            stickyinvoc.transformers.load(state, wait=1)


class Tokenizers(TorchCase):
    def test_text_becomes_the_reference_ids_and_text_again(self):
        for name in ("llama-gqa-tied", "llama3-scaled-untied"):
            folder = GOLDEN / "models" / name
            self.load(name, folder, "bf16")
            tokenizer = stickyinvoc.transformers.load_tokenizer(name)
            rows = (folder / "tokenize.jsonl").read_text(encoding="utf-8").splitlines()
            self.assertGreater(len(rows), 10)
            for row in map(json.loads, rows):
                with self.subTest(name=name, text=row["text"]):
                    self.assertEqual(tokenizer(row["text"])["input_ids"], row["ids"])
                    without = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
                    self.assertEqual(without, row["ids_without_bos"])
                    self.assertEqual(
                        tokenizer.decode(row["ids_without_bos"], skip_special_tokens=True),
                        row["decoded"],
                    )
            self.assertEqual(tokenizer.eos_token, "<|im_end|>")
            talk = tokenizer.apply_chat_template(
                [{"role": "user", "content": "hi"}], tokenize=False
            )
            self.assertEqual(talk, "<|im_start|>user\nhi<|im_end|>\n")

    def test_a_builders_tokenizer_json_is_taken(self):
        folder = GOLDEN / "models/llama-gqa-tied"
        with stickyinvoc.build("with-file") as b:
            b.add("x", [1.0])
            b.add_asset("tokenizer.json", (folder / "tokenizer.json").read_bytes())
        tokenizer = stickyinvoc.transformers.load_tokenizer("with-file")
        self.assertEqual(tokenizer("   ")["input_ids"], [281, 223])

    def test_a_state_without_one_says_so(self):
        with stickyinvoc.build("plain") as b:
            b.add("x", [1.0])
        with self.assertRaisesRegex(stickyinvoc.NotFound, "neither a vocabulary"):
            stickyinvoc.transformers.load_tokenizer("plain")

    def test_a_damaged_vocabulary_is_corrupt(self):
        self.load("whole", GOLDEN / "models/llama-gqa-tied", "bf16")
        whole = bytes(stickyinvoc.attach("whole").asset("vocabulary"))
        for number, data in enumerate((b"short", b"\0" * 200, whole[:-1])):
            with stickyinvoc.build(f"damaged-{number}") as b:
                b.add_asset("vocabulary", data)
            with self.assertRaises(stickyinvoc.Corrupt):
                stickyinvoc.transformers.load_tokenizer(f"damaged-{number}")


class Refusals(TorchCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = GOLDEN / "models/llama-bias"
        cls.weights = safetensors.torch.load_file(path / "model.safetensors")
        cls.config = json.loads((path / "config.json").read_text(encoding="utf-8"))

    def refused(self, name, reason, weights, error=stickyinvoc.InvalidArgument, **config):
        with stickyinvoc.build(name) as b:
            b.add_all({key: weight.numpy() for key, weight in weights.items()})
            if config.pop("with_config", True):
                b.add_asset("config.json", json.dumps({**self.config, **config}))
        with self.assertRaisesRegex(error, reason):
            stickyinvoc.transformers.load(name)

    def test_what_is_no_language_model(self):
        self.refused("plain", "no config.json", self.weights, stickyinvoc.NotFound,
                     with_config=False)  # fmt: skip

    def test_a_model_that_transformers_does_not_know(self):
        self.refused("unknown", "no model_type 'llama9'", self.weights, model_type="llama9")

    def test_tensors_that_are_missing_or_too_many(self):
        few = {name: w for name, w in self.weights.items() if "q_proj.weight" not in name}
        self.refused("few", r"not have model.layers.\*.self_attn.q_proj.weight$", few)
        self.refused("many", "no place for value_head",
                     {**self.weights, "value_head": torch.zeros(2)})  # fmt: skip

    def test_another_shape(self):
        self.refused("shape", r"is \[320, 96\], and the model has it as \[321, 96\]",
                     self.weights, vocab_size=321)  # fmt: skip

    def test_code_that_a_configuration_names_is_not_fetched(self):
        with stickyinvoc.build("code") as b:
            b.add_all({name: weight.numpy() for name, weight in self.weights.items()})
            code = {"AutoModelForCausalLM": "no/such--model.Mine"}
            b.add_asset("config.json", json.dumps({**self.config, "auto_map": code}))
        model = stickyinvoc.transformers.load("code")
        self.assertEqual(type(model).__name__, "LlamaForCausalLM")

    def test_matrices_of_two_dtypes(self):
        mixed = {**self.weights, "lm_head.weight": self.weights["lm_head.weight"].half()}
        self.refused("mixed", "f16, f32", mixed)

    def test_rotations_that_this_transformers_would_overlook(self):
        if int(transformers.__version__.split(".")[0]) >= 5:
            self.skipTest("transformers 5 reads them")
        self.refused("layers", "needs transformers 5", self.weights,
                     rope_parameters={"full_attention": {"rope_theta": 1.0}})  # fmt: skip


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

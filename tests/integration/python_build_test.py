"""Builders in Python with the real daemon: what was filled is what others read, an end of any kind
leaves nothing behind, and an array that outlives its block points at nobody's memory.

usage: python_build_test.py BUILD_FOLDER
"""

import gc
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest.mock

import numpy

import stickyinvoc
from stickyinvoc import _state

BUILD = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
from python_daemon import SOON_S, PythonDaemon  # pylint: disable=wrong-import-position


class BuildCase(unittest.TestCase):
    def setUp(self):
        for name in ("STICKYINVOC_STATE", "STICKYINVOC_LEASE", "STICKYINVOC_BUILD"):
            os.environ.pop(name, None)
        daemon = PythonDaemon(BUILD, "64MiB")
        self.addCleanup(daemon.stop)
        self.socket = str(daemon.socket)
        os.environ["STICKYINVOC_SOCKET"] = self.socket

    def wait_until(self, holds):
        give_up_at = time.monotonic() + SOON_S
        while not holds():
            self.assertLess(time.monotonic(), give_up_at)
            os.sched_yield()

    def show(self, name):
        return subprocess.run(
            [BUILD / "bin/stickyctl", "show", name],
            capture_output=True, text=True, timeout=SOON_S, check=False,
        ).stdout  # fmt: skip

    def is_free(self, name):
        """Whether `name` can be built: nothing of an earlier build is left."""
        try:
            stickyinvoc.build(name).give_up()
        except stickyinvoc.Unavailable:
            return False
        return True


class RoundTrip(BuildCase):
    def test_what_was_filled_is_what_others_read_in_place(self):
        wanted = numpy.arange(10000, dtype="float32").reshape(100, 100) ** 2
        with stickyinvoc.build("table", access="group", idle=3600, builder="me 1") as b:
            squares = b.array("squares", (100, 100), "float32")
            self.assertFalse(squares.any(), "zeros at first")
            squares[:] = wanted
            b.add_asset("notes.json", b'{"made": "by hand"}')
            b.add_asset("empty", "")

        with stickyinvoc.attach("table") as state:
            read = state.tensor("squares")
            self.assertTrue((read == wanted).all())
            self.assertFalse(read.flags.writeable)
            again = stickyinvoc.attach("table").tensor("squares")
            self.assertTrue((again == read).all())
            self.assertEqual(bytes(state.asset("notes.json")), b'{"made": "by hand"}')
            self.assertEqual(bytes(state.asset("empty")), b"")
        self.assertRegex(self.show("table"), r"idle 1 h\n(.*\n)*access: +group")

    def test_every_dtype_and_shape_comes_back(self):
        arrays = {
            "bool": numpy.array([True, False]),
            "scalar": numpy.float64(2.5),
            "empty": numpy.zeros((0, 3), "int8"),
            "big endian": numpy.arange(5, dtype=">u4"),
            "transposed": numpy.arange(12, dtype="int16").reshape(3, 4).T,
        }
        for kind in "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split():
            arrays[kind] = numpy.arange(7, dtype=kind)
        with stickyinvoc.build("all") as b:
            b.add_all(arrays)

        tensors = stickyinvoc.attach("all").tensors()
        self.assertEqual(set(tensors), set(arrays))
        for name, array in arrays.items():
            with self.subTest(name):
                self.assertEqual(tensors[name].dtype, array.dtype.newbyteorder("<"))
                self.assertEqual(tensors[name].shape, array.shape)
                self.assertTrue((tensors[name] == array).all())

    def test_any_number_of_arrays_lie_side_by_side(self):
        with stickyinvoc.build("many") as b:
            arrays = b.arrays({f"n{i}": ((i,), "int32") for i in range(200)})
            for i in range(200):
                arrays[f"n{i}"][:] = i

        state = stickyinvoc.attach("many")
        self.assertEqual(state.tensor("n199").tolist(), [199] * 199)
        self.assertEqual(state.tensor("n3").ctypes.data % 256, 0)
        self.assertEqual(state.info.tensor_count, 200)

    def test_bfloat16_as_raw_bits(self):
        with stickyinvoc.build("bits") as b:
            b.add("one", numpy.array([0x3F80], "uint16"), dtype="bfloat16")
            with self.without_ml_dtypes():
                raw = b.array("two", 1, "bf16")
                self.assertEqual(raw.dtype, numpy.uint16)
                with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "ml_dtypes"):
                    b.add("three", numpy.array([1.0]), dtype="bfloat16")

        state = stickyinvoc.attach("bits")
        self.assertEqual(state.tensor_info("one").dtype, "bf16")
        self.assertEqual(state.tensor_names(), ["one", "two"])

    def without_ml_dtypes(self):
        _state._bfloat16.cache_clear()
        self.addCleanup(_state._bfloat16.cache_clear)
        return unittest.mock.patch.dict(sys.modules, {"ml_dtypes": None})

    def test_of_the_same_recipe_there_is_nothing_to_build_again(self):
        for is_there in (False, True):
            with stickyinvoc.build("table", recipe="table 1") as b:
                self.assertEqual(b.is_there, is_there)
                if not is_there:
                    b.add("x", [1])
                else:
                    with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "is there already"):
                        b.array("x", 1)
        with stickyinvoc.build("table", recipe="table 2", placement="replace") as b:
            b.add("x", [2])
        self.assertEqual(stickyinvoc.attach("table").tensor("x").tolist(), [2])

    def test_a_derived_state_keeps_its_base(self):
        with stickyinvoc.build("base") as b:
            b.add("x", [1])
        with stickyinvoc.build("derived", base="base", pin=True, cpu="any", source="base") as b:
            b.add("y", [2])
        self.assertIn("base", self.show("derived"))
        with self.assertRaises(stickyinvoc.NotFound):
            stickyinvoc.build("other", base="none")

    def test_the_example_makes_a_table_once(self):
        words = [sys.executable, ROOT / "shim/examples/build_table.py", "roots", "1000"]
        said = [subprocess.run(words, capture_output=True, text=True, timeout=SOON_S, check=True)
                for _ in range(2)]  # fmt: skip

        self.assertEqual(said[0].stdout, "1000 square roots are shared\n")
        self.assertEqual(said[1].stdout, "the table is there already\n")
        self.assertEqual(stickyinvoc.attach("roots").tensor("sqrt")[81], 9)

    def test_what_the_documentation_shows_runs(self):
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        programs = re.findall(r"^```python\n# run: .*?\n(.*?)^```", page, re.M | re.S)
        self.assertTrue(programs)
        for program in programs:
            with self.subTest(program):
                subprocess.run([sys.executable, "-c", program], timeout=SOON_S, check=True,
                               stdout=subprocess.DEVNULL)  # fmt: skip


class Ends(BuildCase):
    def test_an_exception_leaves_nothing(self):
        with self.assertRaises(KeyError):
            with stickyinvoc.build("table") as b:
                array = b.array("x", 10)
                row = array[2:]
                raise KeyError("mine")

        self.assertEqual(array.size, 0)
        row[:] = 1  # this process' own memory
        self.wait_until(lambda: self.is_free("table"))
        with self.assertRaisesRegex(stickyinvoc.Unavailable, "ended before it committed"):
            stickyinvoc.attach("table")

    def test_arrays_that_are_still_held_become_empty(self):
        with stickyinvoc.build("table") as b:
            array = b.array("x", (10, 10))
            scalar = b.array("s", ())
            bits = b.array("b", 3, "bfloat16")
            array[:] = 7

        self.assertEqual([array.shape, scalar.shape, bits.shape], [(0,)] * 3)
        self.assertEqual(stickyinvoc.attach("table").tensor("x")[9, 9], 7)

    def test_views_that_are_still_held_are_named(self):
        with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "'x'") as caught:
            with stickyinvoc.build("table") as b:
                b.array("y", 10)[:] = 1
                for row in b.array("x", (10, 10)):
                    row[:] = 1

        self.assertNotIn("'y'", str(caught.exception))
        self.assertIn("for loop", str(caught.exception))
        row[:] = 2
        self.wait_until(lambda: self.is_free("table"))

    def test_views_in_a_cycle_that_nobody_reaches_do_not_count(self):
        with stickyinvoc.build("table") as b:
            cycle = [b.array("x", 10)[2:]]
            cycle.append(cycle)
            del cycle
        self.assertEqual(stickyinvoc.attach("table").tensor("x").size, 10)

    def test_an_address_that_is_still_held_is_this_process_own(self):
        with stickyinvoc.build("table") as b:
            array = b.array("x", 1 << 18)
            array[:] = 7
            view = memoryview(array)

        self.assertEqual(view[0], 0)
        view[0] = 5.0
        self.assertEqual(stickyinvoc.attach("table").tensor("x")[0], 7)
        del array, b
        gc.collect()
        view[len(view) - 1] = 5.0

    def test_what_has_ended_says_so(self):
        with stickyinvoc.build("table") as b:
            b.add("x", [1])
        for use in (lambda: b.array("y", 1), lambda: b.is_there, b.commit):
            with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "has ended"):
                use()
        b.give_up()
        self.assertEqual(stickyinvoc.attach("table").tensor("x").tolist(), [1])

    def test_mistakes_are_named_and_the_build_goes_on(self):
        with stickyinvoc.build("table") as b:
            b.add("x", [1])
            for mistake, reason in (
                (lambda: b.add("x", [1]), "'x'"),
                (lambda: b.add("c", [1j]), "complex128"),
                (lambda: b.array("r", (1,) * 9), "not allowed"),
                (lambda: b.array("n", -1), "not allowed"),
                (lambda: b.array("d", 1, "no such"), "no such"),
                (lambda: b.array("a\0b", 1), "NUL"),
                (lambda: b.array("a\udce9", 1), "udce9"),
                (lambda: b.add_asset("a\udce9", b"x"), "udce9"),
                (lambda: b.add_asset("text", "\ud800"), "give bytes"),
            ):
                with self.assertRaisesRegex(stickyinvoc.InvalidArgument, reason):
                    mistake()
            with self.assertRaisesRegex(stickyinvoc.OutOfMemory, "budget"):
                b.array("large", 1 << 25)
        self.assertEqual(list(stickyinvoc.attach("table").tensors()), ["x"])
        for wrong in ({"access": "all"}, {"placement": "beside"}, {"idle": -1}, {"base": "a\0b"}):
            with self.assertRaises(stickyinvoc.InvalidArgument):
                stickyinvoc.build("other", **wrong)

    def test_a_name_that_is_taken_is_refused(self):
        first = stickyinvoc.build("table")
        with self.assertRaises(stickyinvoc.Unavailable):
            stickyinvoc.build("table")
        first.add("x", [1])
        first.commit()
        with self.assertRaisesRegex(stickyinvoc.InvalidArgument, 'placement="replace" in Python'):
            stickyinvoc.build("table")


class Adopted(BuildCase):
    """As `stickyctl build` starts a program: the build is begun, and its connection passed on."""

    def begun(self, name):
        """The number of the connection of a build of `name` that this process began."""
        before = self.sockets()
        self.parent = stickyinvoc.build(name)
        (made,) = self.sockets() - before
        return made

    def sockets(self):
        return {int(fd) for fd in os.listdir("/proc/self/fd") if self.is_socket(fd)}

    @staticmethod
    def is_socket(fd):
        try:
            return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except FileNotFoundError:
            return False  # that of the listing itself

    def child(self, fd, program):
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "STICKYINVOC_BUILD": str(fd), "STICKYINVOC_STATE": "table"},
            pass_fds=[fd], capture_output=True, text=True, timeout=SOON_S, check=False,
        )  # fmt: skip

    def test_a_build_that_was_begun_outside_needs_no_name(self):
        for name in ("", "'table'"):
            fd = self.begun("table")
            done = self.child(fd, f"""
import stickyinvoc
with stickyinvoc.build({name}) as b:
    b.add("x", [1, 2])
""")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.parent.give_up()
            self.assertEqual(stickyinvoc.attach("table").tensor("x").tolist(), [1, 2])
            subprocess.run([BUILD / "bin/stickyctl", "evict", "table"], check=True,
                           capture_output=True, timeout=SOON_S)  # fmt: skip
            self.wait_until(lambda: self.is_free("table"))

    def test_what_was_decided_outside_is_not_decided_again(self):
        fd = self.begun("table")
        done = self.child(fd, "import stickyinvoc as s; s.build(idle=5, pin=True)")
        self.assertIn("pin, idle cannot be chosen here", done.stderr)

    def test_without_a_name_and_without_stickyctl_build_it_says_so(self):
        with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "stickyctl build"):
            stickyinvoc.build()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

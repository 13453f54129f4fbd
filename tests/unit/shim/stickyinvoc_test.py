"""The Python package on a fake daemon: zero-copy read-only arrays of every dtype that never point
at nothing, typed exceptions, and children of fork that attach anew."""

import os
import pickle
import subprocess
import sys
import threading
import time
import types
import unittest

import numpy

import stickyinvoc
from stickyinvoc import _state

SOON_S = 10.0


def byte_at(offset):
    return offset % 251


class PackageTest(unittest.TestCase):
    def setUp(self):
        for name in ("STICKYINVOC_SOCKET", "STICKYINVOC_STATE", "STICKYINVOC_LEASE"):
            os.environ.pop(name, None)
        _state._bfloat16.cache_clear()
        self.daemon = subprocess.Popen(
            [os.environ["STICKY_FAKE_STICKYD"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.stop)
        self.socket = self.daemon.stdout.readline().strip()

    def stop(self):
        self.daemon.stdin.close()
        self.daemon.wait(SOON_S)
        self.daemon.stdout.close()

    def facts(self):
        """(accepted connections, ended connections, whether the arena is borrowed)."""
        self.daemon.stdin.write("?\n")
        self.daemon.stdin.flush()
        accepted, closed, borrowed = self.daemon.stdout.readline().split()
        return int(accepted), int(closed), borrowed == "1"

    def wait_for(self, wanted):
        give_up_at = time.monotonic() + SOON_S
        while self.facts() != wanted:
            self.assertLess(time.monotonic(), give_up_at, f"{self.facts()} is not {wanted}")
            os.sched_yield()

    def attach(self, name="sample", **options):
        return stickyinvoc.attach(name, socket=self.socket, **options)

    def in_child(self, body):
        """Runs body in a child of fork; it must return without an exception."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                body()
                code = 0
            except BaseException as error:  # the child must not run the parent's tests
                print(f"in child: {error!r}", file=sys.stderr)
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(status, 0)


class TensorsTest(PackageTest):
    def test_every_dtype_is_read_in_place(self):
        state = self.attach()
        numpy_types = {
            "bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4",
            "i32": "i4", "u64": "u8", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
        }  # fmt: skip
        for index, dtype in enumerate(stickyinvoc._library.DTYPES):
            array = state.tensor("dtype." + dtype)
            self.assertEqual(array.shape, (2, 3))
            if dtype != "bf16":
                self.assertEqual(array.dtype, numpy.dtype(numpy_types[dtype]))
            self.assertEqual(array.ctypes.data % 256, 0)
            self.assertEqual(
                list(array.tobytes()), [byte_at(256 * index + i) for i in range(array.nbytes)]
            )

    def test_two_arrays_of_one_tensor_are_the_same_memory(self):
        state = self.attach()
        first = state.tensor("tied")
        second = state.tensors()["tied"]
        original = state.tensor("dtype.f64")
        self.assertEqual(first.ctypes.data, second.ctypes.data)
        self.assertTrue(numpy.shares_memory(first, original))

    def test_arrays_are_read_only_for_good(self):
        array = self.attach().tensor("dtype.f32")
        self.assertFalse(array.flags.writeable)
        with self.assertRaises(ValueError):
            array[0, 0] = 1
        with self.assertRaises(ValueError):
            array.flags.writeable = True
        with self.assertRaises(ValueError):
            array.view(numpy.uint8).flags.writeable = True

    def test_writing_through_the_address_ends_the_writer(self):
        array = self.attach().tensor("dtype.f32")
        pid = os.fork()
        if pid == 0:
            import ctypes
            import signal

            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.memset(array.ctypes.data, 1, 1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        self.assertTrue(os.WIFSIGNALED(status))

    def test_scalars_and_empty_tensors(self):
        state = self.attach()
        self.assertEqual(state.tensor("a.scalar").shape, ())
        self.assertEqual(state.tensor("an.empty").shape, (0, 5))
        self.assertEqual(state.tensor("an.empty").size, 0)

    def test_the_mapping_has_every_name_in_order(self):
        tensors = self.attach().tensors()
        names = list(tensors)
        self.assertEqual(names, sorted(names))
        self.assertEqual(len(tensors), len(names))
        self.assertIn("tied", tensors)
        self.assertNotIn("none", tensors)
        self.assertIsNone(tensors.get("none"))
        self.assertEqual({name: array.shape for name, array in tensors.items()}["tied"], (6,))
        with self.assertRaises(KeyError):
            tensors["none"]

    def test_bf16_is_raw_without_ml_dtypes(self):
        saved = sys.modules.get("ml_dtypes")
        sys.modules["ml_dtypes"] = None  # makes the import fail
        self.addCleanup(self.restore_ml_dtypes, saved)
        self.assertEqual(self.attach().tensor("dtype.bf16").dtype, numpy.uint16)

    def test_bf16_is_bfloat16_with_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            # Any type of two bytes shows that the package's is taken and nothing is copied.
            ml_dtypes = types.SimpleNamespace(bfloat16=numpy.dtype(numpy.float16))
            self.addCleanup(self.restore_ml_dtypes, None)
            sys.modules["ml_dtypes"] = ml_dtypes
        array = self.attach().tensor("dtype.bf16")
        self.assertEqual(array.dtype, numpy.dtype(ml_dtypes.bfloat16))
        self.assertFalse(array.flags.writeable)
        self.assertEqual(array.tobytes()[0], byte_at(256 * 10))

    def restore_ml_dtypes(self, saved):
        if saved is None:
            sys.modules.pop("ml_dtypes", None)
        else:
            sys.modules["ml_dtypes"] = saved

    def test_tensor_info_does_not_need_numpy(self):
        info = self.attach().tensor_info("dtype.bf16")
        self.assertEqual(info, ("dtype.bf16", "bf16", (2, 3), 12))


class AssetsTest(PackageTest):
    def test_assets_are_read_only_views(self):
        state = self.attach()
        self.assertEqual(state.asset_names(), ["config.json", "vocabulary"])
        view = state.asset("config.json")
        self.assertEqual(bytes(view), b'{"layers":1')
        self.assertTrue(view.readonly)
        with self.assertRaises(KeyError):
            state.asset("none")


class LifetimeTest(PackageTest):
    def test_a_context_ends_the_lease(self):
        with self.attach() as state:
            self.assertEqual(self.facts(), (1, 0, True))
            self.assertEqual(state.info.name, "sample")
        self.wait_for((1, 1, False))

    def test_the_lease_lasts_as_long_as_an_array(self):
        with self.attach() as state:
            array = state.tensor("tied")
            part = array[2:4]
        del array
        self.assertEqual(self.facts(), (1, 0, True))
        self.assertEqual(part.tobytes()[0], byte_at(12 * 256 + 16))
        del part
        self.wait_for((1, 1, False))

    def test_the_lease_lasts_as_long_as_an_asset(self):
        with self.attach() as state:
            view = state.asset("config.json")
        self.assertEqual(self.facts(), (1, 0, True))
        self.assertEqual(view[0], ord("{"))
        del view
        self.wait_for((1, 1, False))

    def test_a_detached_state_says_so(self):
        state = self.attach()
        state.detach()
        state.detach()
        for use in (state.tensors, state.asset_names, state.tensor_names, lambda: state.info):
            with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "detached"):
                use()
        self.assertIn("detached", repr(state))

    def test_the_state_outlives_the_daemon(self):
        array = self.attach().tensor("tied")
        self.daemon.kill()
        self.assertEqual(array.tobytes()[0], byte_at(12 * 256))

    def test_a_state_is_not_pickled(self):
        with self.assertRaisesRegex(TypeError, "attach by name"):
            pickle.dumps(self.attach())


class ForkTest(PackageTest):
    def test_a_child_attaches_anew_and_its_end_leaves_the_parent(self):
        state = self.attach()
        before = state.tensor("tied")

        def child():
            assert before.tobytes()[0] == byte_at(12 * 256)
            after = state.tensor("tied")
            assert after.tobytes() == before.tobytes()
            assert after.ctypes.data != before.ctypes.data
            assert self.facts()[0] == 2

        self.in_child(child)
        self.wait_for((2, 1, True))
        self.assertEqual(state.tensor("tied").ctypes.data, before.ctypes.data)

    def test_a_child_that_drops_everything_leaves_the_parent(self):
        state = self.attach()
        array = state.tensor("tied")

        def child():
            nonlocal array
            array = None
            state.detach()

        self.in_child(child)
        self.assertEqual(self.facts(), (1, 0, True))
        self.assertEqual(state.tensor("tied").tobytes(), array.tobytes())

    def test_threads_of_a_child_attach_once(self):
        state = self.attach()

        def child():
            threads = [threading.Thread(target=state.tensor, args=("tied",)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert self.facts()[0] == 2

        self.in_child(child)


class RefusedTest(PackageTest):
    def test_no_daemon_is_unavailable(self):
        with self.assertRaisesRegex(stickyinvoc.Unavailable, "start stickyd") as caught:
            stickyinvoc.attach("sample", socket="/tmp/no-such-folder/s")
        self.assertEqual(caught.exception.code, 3)
        self.assertEqual(caught.exception.os_code, 2)

    def test_no_daemon_is_not_waited_for(self):
        began_at = time.monotonic()
        with self.assertRaises(stickyinvoc.Unavailable):
            stickyinvoc.attach("sample", socket="/tmp/no-such-folder/s", wait=600)
        self.assertLess(time.monotonic() - began_at, SOON_S)

    def test_another_digest_is_corrupt(self):
        with self.assertRaisesRegex(stickyinvoc.Corrupt, "ab" * 16):
            self.attach(digest="ab" * 16)
        right = self.attach().info.content_digest
        self.assertEqual(self.attach(digest=right).info.content_digest, right)
        self.assertEqual(self.attach(digest=bytes.fromhex(right)).info.epoch, 3)

    def test_mistakes_are_invalid(self):
        for mistake in (
            lambda: self.attach("no/name"),
            lambda: self.attach(digest="abc"),
            lambda: self.attach(digest=b"short"),
            lambda: self.attach(None),
            lambda: self.attach().tensor("a\0b"),
        ):
            with self.assertRaises(stickyinvoc.InvalidArgument):
                mistake()

    def test_names_that_are_no_text_are_invalid_and_told_escaped(self):
        broken = os.fsdecode(b"caf\xe9")  # as os.listdir gives it
        state = self.attach()
        for use in (
            lambda: self.attach(broken),
            lambda: state.tensor(broken),
            lambda: state.asset(broken),
            lambda: stickyinvoc.build(broken, socket=self.socket),
            lambda: stickyinvoc.build("a", source=broken, socket=self.socket),
            lambda: stickyinvoc.build("a", recipe=broken, socket=self.socket),
        ):
            with self.assertRaisesRegex(stickyinvoc.InvalidArgument, r"'caf\\udce9'") as raised:
                use()
            str(raised.exception).encode()  # it can be printed
        with self.assertRaises(stickyinvoc.InvalidArgument):
            stickyinvoc.attach("sample", socket="/tmp/\ud800")

    def test_a_name_with_a_nul_is_not_cut_short(self):
        with self.assertRaisesRegex(stickyinvoc.InvalidArgument, "NUL"):
            self.attach("sample\0more")

    def test_what_is_not_there_is_not_found(self):
        with self.assertRaisesRegex(stickyinvoc.NotFound, "no.such"):
            self.attach().tensor("no.such")

    def test_the_environment_is_used(self):
        os.environ["STICKYINVOC_SOCKET"] = self.socket
        os.environ["STICKYINVOC_STATE"] = "sample"
        self.assertEqual(stickyinvoc.attach().info.name, "sample")


class LibraryTest(unittest.TestCase):
    def run_python(self, code, **environment):
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )

    def test_import_opens_nothing(self):
        code = "import stickyinvoc, sys; print(open('/proc/self/maps').read())"
        done = self.run_python(code)
        self.assertNotIn("libstickyinvoc", done.stdout)
        self.assertNotIn("numpy", done.stdout)

    def test_a_missing_library_is_named(self):
        done = self.run_python(
            "import stickyinvoc; stickyinvoc.version()", STICKYINVOC_LIBRARY="/no/such.so"
        )
        self.assertIn("/no/such.so", done.stderr)
        self.assertIn("STICKYINVOC_LIBRARY", done.stderr)

    def test_the_structs_are_those_of_the_header(self):
        # tests/layout/enumerations_test.cc has the same numbers on the C side.
        import ctypes

        from stickyinvoc import _library

        self.assertEqual(ctypes.sizeof(_library.CError), 520)
        self.assertEqual(ctypes.sizeof(_library.CAttachOptions), 32)
        self.assertEqual(ctypes.sizeof(_library.CTensor), 96)
        self.assertEqual(_library.CTensor.shape.offset, 32)
        self.assertEqual(ctypes.sizeof(_library.CStateInfo), 104)
        self.assertEqual(_library.CStateInfo.name.offset, 80)
        self.assertEqual(ctypes.sizeof(_library.CBuildOptions), 88)
        self.assertEqual(ctypes.sizeof(_library.CBuildTensor), 96)

    def test_the_dtypes_are_those_of_the_library(self):
        import ctypes

        from stickyinvoc import _library

        name = ctypes.CDLL(os.environ["STICKYINVOC_LIBRARY"]).sti_dtype_name
        name.restype = ctypes.c_char_p
        for index, dtype in enumerate(_library.DTYPES):
            self.assertEqual(name(index).decode(), dtype)
        self.assertIsNone(name(len(_library.DTYPES)))

    def test_the_version_is_the_librarys(self):
        self.assertRegex(stickyinvoc.version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()

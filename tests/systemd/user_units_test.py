"""The units of a user's own stickyd under a real `systemd --user`: the first client starts the
daemon, and what becomes of it and of its states at restart, stop, SIGKILL and a watchdog's end.

usage: user_units_test.py UNIT_FOLDER BUILD_FOLDER
"""

import json
import os
import pathlib
import signal
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import manager  # noqa: E402  (it lies beside this file)

UNITS, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SERVICE, SOCKET = "stickyd.service", "stickyd.socket"
# Soon enough for a test; the unit itself is tried as it is shipped everywhere else.
FAST_WATCHDOG = "[Service]\nWatchdogSec=2s\nTimeoutAbortSec=500ms\n"


class UserUnits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.manager = manager.Manager(os.environ[manager.FOLDER])
        cls.manager.start(sorted((UNITS / "user").glob("stickyd.*")))
        header = json.dumps({"a": {"dtype": "U8", "shape": [4096],
                                   "data_offsets": [0, 4096]}}).encode()
        cls.template = cls.manager.folder / "toy.yaml"
        (cls.manager.folder / "toy.safetensors").write_bytes(
            struct.pack("<Q", len(header)) + header + bytes(4096))
        cls.template.write_text("name: toy\nsource:\n  path: toy.safetensors\n", encoding="utf-8")

    def setUp(self):
        self.manager.ctl("stop", SOCKET, SERVICE)
        self.manager.try_ctl("reset-failed")
        self.manager.ctl("start", SOCKET)

    def ask(self, *words):
        """A document of stickyctl's, which must succeed."""
        done = self.manager.run(BUILD / "bin" / "stickyctl", "--json", *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.manager.log())
        return json.loads(done.stdout)

    def load(self):
        self.ask("load", self.template, "--wait")
        self.assertEqual([state["name"] for state in self.ask("ls")["states"]], ["toy"])
        return self.main_pid()

    def the_state(self):
        """What identifies it. Fails when it is not there, or not alone."""
        (state,) = self.ask("ls")["states"]
        self.assertTrue(state["outlives_daemon"])
        return [state[key] for key in ("name", "phase", "epoch", "content_digest")]

    def main_pid(self):
        return int(self.manager.property(SERVICE, "MainPID"))

    def test_the_first_client_starts_the_daemon(self):
        self.assertEqual(self.manager.state(SERVICE), "inactive")

        status = self.ask("status")["daemon"]

        self.assertEqual(self.manager.state(SERVICE), "active")
        self.assertEqual(status["pid"], self.main_pid())
        path = self.manager.runtime / "stickyinvoc" / "stickyd.sock"
        self.assertEqual(status["socket_path"], str(path))
        self.assertEqual(path.stat().st_mode & 0o7777, 0o600)
        self.assertEqual(path.parent.stat().st_mode & 0o7777, 0o700)
        self.assertIn("state", self.manager.property(SERVICE, "StatusText"))

    def test_a_restart_keeps_states_and_the_socket(self):
        before = self.load()
        state = self.the_state()
        for restart in range(3):
            with self.subTest(restart):
                self.manager.ctl("restart", SERVICE)

                self.assertEqual(self.the_state(), state)
                self.assertNotEqual(self.main_pid(), before)
        self.assertEqual(self.ask("status")["daemon"]["keeper"], "systemd")

    def test_an_evicted_state_is_free_in_the_store_too(self):
        self.load()
        kept = self.manager.property(SERVICE, "NFileDescriptorStore")
        self.assertEqual(kept, "3")

        self.ask("evict", "toy", "--wait")

        self.assertEqual(self.manager.property(SERVICE, "NFileDescriptorStore"), "0")

    def test_shutdown_keeps_states_or_drops_them(self):
        before = self.load()
        state = self.the_state()

        self.ask("shutdown", "--keep-states")

        manager.wait_until(lambda: self.main_pid() not in (0, before), "the next daemon")
        self.assertEqual(self.the_state(), state)
        self.ask("shutdown")
        manager.wait_until(lambda: self.manager.state(SERVICE) == "inactive", "the end")
        self.assertEqual(self.manager.property(SERVICE, "Result"), "success")
        self.assertEqual(self.ask("ls")["states"], [])

    def test_a_stop_is_clean_and_the_next_client_starts_another(self):
        self.load()

        self.manager.ctl("stop", SERVICE)

        self.assertEqual(self.manager.property(SERVICE, "Result"), "success")
        self.assertEqual(self.manager.property(SERVICE, "ExecMainStatus"), "0")
        self.assertEqual(self.ask("ls")["states"], [])

    def test_a_killed_daemon_comes_back_and_who_asks_meanwhile_waits(self):
        before = self.load()
        state = self.the_state()

        os.kill(before, signal.SIGKILL)

        self.assertEqual(self.the_state(), state)
        self.assertNotEqual(self.ask("status")["daemon"]["pid"], before)
        manager.wait_until(lambda: self.manager.property(SERVICE, "NRestarts") == "1",
                           "the manager counts a restart")

    def test_a_daemon_that_hangs_is_replaced(self):
        folder = self.manager.units / (SERVICE + ".d")
        folder.mkdir()
        self.addCleanup(self.manager.ctl, "daemon-reload")
        self.addCleanup(folder.rmdir)
        self.addCleanup((folder / "fast.conf").unlink)
        (folder / "fast.conf").write_text(FAST_WATCHDOG, encoding="utf-8")
        self.manager.ctl("daemon-reload")
        before = self.load()

        os.kill(before, signal.SIGSTOP)

        manager.wait_until(lambda: self.main_pid() not in (0, before), "another daemon")
        self.assertNotEqual(self.ask("status")["daemon"]["pid"], before)

    def test_doctor_finds_nothing_wrong_with_the_daemon(self):
        done = self.manager.run(BUILD / "bin" / "stickyctl", "doctor", "--json")

        levels = {(one["what"], one["level"]) for one in json.loads(done.stdout)["findings"]}
        for what in ("socket", "folder", "daemon", "keeper", "open-files"):
            with self.subTest(what):
                self.assertIn((what, "ok"), levels, done.stdout)


if __name__ == "__main__":
    manager.main()

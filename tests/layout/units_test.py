"""The service manager's files: they verify without a word, expose little, and the real stickyd
starts on a socket that it is handed. Usage: units_test.py UNIT_DIR SOURCE_DIR BUILD_DIR.
UNIT_DIR has system/ and user/ with the units of the build tree.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

UNITS, SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
EXPOSURE_MAX = 25  # tenths
DEADLINE_S = 20


def run(*command, **options):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, **options)


class Units(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sticky-u-", dir="/tmp"))
        self.addCleanup(lambda: run("rm", "-rf", self.folder))

    def verify(self, kind, *options):
        environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.folder))
        units = sorted((UNITS / kind).glob("stickyd.*"))
        self.assertEqual([unit.name for unit in units], ["stickyd.service", "stickyd.socket"])
        return run("systemd-analyze", "verify", "--man=no", *options, *units, env=environment)

    # It exits with 0 on a misspelt key and only prints: silence is what counts.
    def test_system_units_verify_in_silence(self):
        done = self.verify("system")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_user_units_verify_in_silence(self):
        done = self.verify("user", "--user")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_misspelt_key_would_be_seen(self):
        for unit in (UNITS / "system").glob("stickyd.*"):
            text = unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege=")
            (self.folder / unit.name).write_text(text)
        done = run("systemd-analyze", "verify", "--man=no", self.folder / "stickyd.service")
        self.assertIn("NoNewPrivilege", done.stdout)

    def test_the_system_service_exposes_little(self):
        done = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                   f"--threshold={EXPOSURE_MAX}", UNITS / "system" / "stickyd.service")
        self.assertEqual(done.returncode, 0, done.stdout[-300:])
        self.assertIn("Overall exposure level", done.stdout)

    # A user's manager may not do most of what the exposure counts (capabilities, mounts, devices):
    # what it may do is done.
    def test_the_user_service_does_what_a_users_manager_can(self):
        done = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short",
                   UNITS / "user" / "stickyd.service")
        exposed = {row["json_field"] for row in json.loads(done.stdout) if row["exposure"]}
        for key in ("NoNewPrivileges", "LockPersonality", "MemoryDenyWriteExecute",
                    "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures", "UMask",
                    "RestrictAddressFamilies_AF_INET_INET6", "RestrictNamespaces_user",
                    "SystemCallFilter_mount", "SystemCallFilter_debug"):
            with self.subTest(key):
                self.assertIn(key, {row["json_field"] for row in json.loads(done.stdout)})
                self.assertNotIn(key, exposed)

    def test_the_user_and_the_folder_are_described_well(self):
        users = run("systemd-sysusers", "--dry-run", f"--root={self.folder}",
                    SOURCE / "systemd" / "sysusers.conf")
        self.assertEqual(users.returncode, 0, users.stdout)
        self.assertIn("Creating user 'stickyinvoc'", users.stdout)
        (self.folder / "sys/kernel/mm/transparent_hugepage").mkdir(parents=True)
        setting = self.folder / "sys/kernel/mm/transparent_hugepage/shmem_enabled"
        setting.write_text("never")
        made = run("systemd-tmpfiles", "--create", f"--root={self.folder}",
                   SOURCE / "systemd" / "tmpfiles.conf")
        if os.geteuid() == 0:  # others may not give a folder to root
            self.assertEqual((made.returncode, made.stdout), (0, ""))
            self.assertEqual((self.folder / "run/stickyinvoc").stat().st_mode & 0o7777, 0o755)
        self.assertEqual(setting.read_text().strip(), "advise")

    # What stickyd.socket does: the manager listens, the first client starts the daemon.
    def test_stickyd_starts_on_a_socket_that_it_is_handed(self):
        sock = self.folder / "s"
        daemon = subprocess.Popen(
            ["systemd-socket-activate", "--seqpacket", "-l", sock, BUILD / "bin/stickyd"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + DEADLINE_S
            while not sock.exists() and time.monotonic() < end:
                time.sleep(0.01)
            asked = subprocess.run([BUILD / "bin/stickyctl", "--socket", sock, "status", "--json"],
                                   stdout=subprocess.PIPE, timeout=DEADLINE_S)
            self.assertEqual(asked.returncode, 0)
            status = json.loads(asked.stdout)["daemon"]
            self.assertEqual(status["socket_path"], str(sock))
            self.assertEqual(status["pid"], daemon.pid)
        finally:
            daemon.terminate()
            daemon.communicate(timeout=DEADLINE_S)
        self.assertTrue(sock.exists(), "the socket is the manager's: it stays")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

"""The units of a node's stickyd, under a real systemd with a user of its own for the daemon, and
two other users: what the service's socket lets in, and that a user's own daemon works beside it.

The manager is a `systemd --user` that is root, so what only PID 1 can do (its control groups, the
firewall) is not shown here.

usage: system_units_test.py UNIT_FOLDER BUILD_FOLDER
"""

import json
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import manager  # noqa: E402  (it lies beside this file)

UNITS, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SERVICE, SOCKET = "stickyd.service", "stickyd.socket"
USERS = {"stickyinvoc": 64001, "alice": 64002, "bob": 64003}
NODE_SOCKET = pathlib.Path("/run/stickyinvoc/stickyd.sock")


class SystemUnits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.manager = manager.Manager(os.environ[manager.FOLDER])
        cls.manager.folder.chmod(0o755)
        cls.add_users()
        cls.programs = cls.copy_programs()
        subprocess.run(["systemd-tmpfiles", "--create", "--prefix=/run/stickyinvoc",
                        SOURCE / "systemd" / "tmpfiles.conf"], check=True)
        cls.manager.start(cls.units())
        cls.manager.ctl("start", SOCKET)

    @classmethod
    def add_users(cls):
        """Seen in this mount namespace only."""
        for name in ("passwd", "group"):
            lines = [line for line in pathlib.Path("/etc", name).read_text().splitlines()
                     if line.split(":")[0] not in USERS]
            for user, number in USERS.items():
                rest = f"{number}::/nonexistent:/bin/sh" if name == "passwd" else ""
                lines.append(f"{user}:x:{number}:{rest}")
            copy = cls.manager.folder / name
            copy.write_text("\n".join(lines) + "\n", encoding="utf-8")
            copy.chmod(0o644)
            subprocess.run(["mount", "--bind", copy, f"/etc/{name}"], check=True)

    @classmethod
    def copy_programs(cls):
        """Where every user may run them, and the service too: neither at home nor in /tmp."""
        prefix = pathlib.Path("/run/sticky-prefix")
        for folder, names in {"bin": ["stickyd", "stickyctl"], "libexec": ["stickyinvoc"]}.items():
            for name in names:
                source, target = BUILD / folder / name, prefix / folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        shutil.copy(SOURCE / "config" / "stickyinvoc.yaml", prefix)
        return prefix

    @classmethod
    def units(cls):
        """As they are shipped, but for where the programs are."""
        folder = cls.manager.folder / "made"
        folder.mkdir()
        for unit in (UNITS / "system").glob("stickyd.*"):
            text = unit.read_text().replace(str(BUILD / "bin"), str(cls.programs / "bin"))
            text = text.replace(str(SOURCE / "config"), str(cls.programs))
            (folder / unit.name).write_text(text)
        return sorted(folder.iterdir())

    def ctl_as(self, user, *words, **environment):
        number = USERS[user]
        return subprocess.run(
            [self.programs / "bin" / "stickyctl", *words], capture_output=True, text=True,
            user=number, group=number, extra_groups=[], timeout=manager.DEADLINE_S, check=False,
            env={"PATH": os.environ["PATH"], **environment})

    def test_the_socket_is_open_to_all_and_its_folder_is_roots(self):
        found = NODE_SOCKET.stat()
        self.assertTrue(stat.S_ISSOCK(found.st_mode))
        self.assertEqual(found.st_mode & 0o7777, 0o666)
        self.assertEqual((found.st_uid, found.st_gid), (USERS["stickyinvoc"],) * 2)
        folder = NODE_SOCKET.parent.stat()
        self.assertEqual((folder.st_mode & 0o7777, folder.st_uid), (0o755, 0))

    def test_the_daemons_own_user_is_served_and_the_daemon_is_that_user(self):
        done = self.ctl_as("stickyinvoc", "status", "--json")

        self.assertEqual(done.returncode, 0, done.stderr + self.manager.log())
        daemon = json.loads(done.stdout)["daemon"]
        self.assertEqual(daemon["uid"], USERS["stickyinvoc"])
        self.assertEqual(daemon["socket_path"], str(NODE_SOCKET))
        self.assertEqual(daemon["pid"], int(self.manager.property(SERVICE, "MainPID")))

    def test_the_hardened_daemon_loads(self):
        header = json.dumps({"a": {"dtype": "U8", "shape": [4096],
                                   "data_offsets": [0, 4096]}}).encode()
        (self.manager.folder / "toy.safetensors").write_bytes(
            struct.pack("<Q", len(header)) + header + bytes(4096))
        template = self.manager.folder / "toy.yaml"
        template.write_text("name: toy\nsource:\n  path: toy.safetensors\n", encoding="utf-8")

        loaded = self.ctl_as("stickyinvoc", "load", template, "--wait", "--json")

        self.assertEqual(loaded.returncode, 0, loaded.stdout + loaded.stderr)
        self.assertEqual(json.loads(loaded.stdout)["state"]["phase"], "ready")
        self.assertEqual(self.ctl_as("alice", "ls").returncode, 0, "every user is served")
        refused = self.ctl_as("alice", "show", "toy")
        self.assertEqual(refused.returncode, 77, refused.stderr)
        self.assertIn("for itself alone", refused.stderr)
        self.assertEqual(self.ctl_as("alice", "evict", "toy").returncode, 77)
        self.assertEqual(self.ctl_as("stickyinvoc", "evict", "toy").returncode, 0)

    def test_a_users_own_daemon_works_beside_the_nodes(self):
        self.assertEqual(self.ctl_as("stickyinvoc", "status").returncode, 0)
        runtime = self.manager.folder / "bob"
        runtime.mkdir(mode=0o700)
        shutil.chown(runtime, USERS["bob"], USERS["bob"])
        own = {"XDG_RUNTIME_DIR": str(runtime)}
        daemon = subprocess.Popen(
            [self.programs / "bin" / "stickyd"], user=USERS["bob"], group=USERS["bob"],
            extra_groups=[], env={"PATH": os.environ["PATH"], **own}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        try:
            manager.wait_until(lambda: self.ctl_as("bob", "ls", **own).returncode == 0,
                               "bob's daemon answers")
            found = json.loads(self.ctl_as("bob", "status", "--json", **own).stdout)["daemon"]
            self.assertEqual((found["pid"], found["uid"]), (daemon.pid, USERS["bob"]))
            nodes = json.loads(self.ctl_as("bob", "status", "--json").stdout)["daemon"]
            self.assertEqual(nodes["uid"], USERS["stickyinvoc"], "the node's is another one")
        finally:
            daemon.terminate()
            daemon.communicate(timeout=manager.DEADLINE_S)


if __name__ == "__main__":
    manager.main()

"""The manual pages that the build made: every command and option that a program knows is in its
page, roff is content with them, and the units name pages that are there."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STICKY_BUILD_DIR", ROOT / "build" / "dev"))
PAGES = {"stickyd": "stickyd.8", "stickyctl": "stickyctl.1", "sticky-llm": "sticky-llm.1"}
COMMANDS = {"stickyd": [], "sticky-llm": ["generate", "verify"],
            "stickyctl": ["load", "ls", "show", "status", "leases", "top", "events", "hold", "run",
                          "build", "evict", "drain", "budget", "shutdown", "doctor", "version"]}


def help_of(program, *words):
    return subprocess.run([BUILD / "bin" / program, *words, "--help"], capture_output=True,
                          text=True, timeout=20, check=True).stdout


def page(program):
    return (BUILD / "docs" / "man" / PAGES[program]).read_text()


class ManualPages(unittest.TestCase):
    def test_every_command_and_option_is_in_its_page(self):
        for program, commands in COMMANDS.items():
            text = page(program).replace(r"\-", "-")
            for words in [[], *([command] for command in commands)]:
                known = help_of(program, *words)
                options = re.findall(r"(?<![\w-])--?[a-z][\w-]*", known)
                self.assertTrue(options)
                for option in options:
                    with self.subTest(page=PAGES[program], command=words, option=option):
                        self.assertRegex(text, rf"(?<![\w-]){re.escape(option)}(?![\w-])")
            for command in commands:
                with self.subTest(page=PAGES[program], command=command):
                    self.assertIn(f"\n.SS {command}\n", text)

    def test_the_commands_are_those_that_the_programs_list(self):
        for program, commands in COMMANDS.items():
            listed = re.findall(r"^  ([a-z]+) {2,}\S", help_of(program), re.MULTILINE)
            self.assertEqual(listed, commands, program)

    def test_no_mark_is_left_and_the_page_names_itself(self):
        for program, name in PAGES.items():
            text = page(program)
            with self.subTest(name):
                self.assertNotRegex(text, r"@[A-Z_]+@")
                self.assertNotIn(str(BUILD), text)
                section = name[-1]
                self.assertRegex(text.replace(r"\-", "-"),
                                 rf"^\.TH {program.upper()} {section} ")

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_roff_has_nothing_to_say(self):
        for name in PAGES.values():
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z",
                                   BUILD / "docs" / "man" / name],
                                  capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), name)

    def test_the_units_name_pages_that_are_there(self):
        units = [file for file in (ROOT / "systemd").rglob("stickyd.*") if file.is_file()]
        self.assertEqual(len(units), 4)
        for unit in units:
            named = re.search(r"^Documentation=man:(\S+)\((\d)\)$", unit.read_text(), re.MULTILINE)
            self.assertIsNotNone(named, unit)
            self.assertIn(f"{named[1]}.{named[2]}", PAGES.values())


if __name__ == "__main__":
    unittest.main()

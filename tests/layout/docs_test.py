"""What the documents name is there: links, paths, functions, and the options of command lines."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STICKY_BUILD_DIR", ROOT / "build" / "dev"))
PROGRAMS = {"stickyctl": "bin/stickyctl", "sticky-llm": "bin/sticky-llm", "stickyd": "bin/stickyd"}


def documents():
    skipped = {"build", ".git", "data", "node_modules"}
    return [file for file in sorted(ROOT.rglob("*.md"))
            if not skipped.intersection(file.relative_to(ROOT).parts)]


def without_code_blocks(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def code_lines(text):
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n\s*", "", block).splitlines()


def is_path(word):
    """Whether a word in backticks claims that a file or folder of the repository is there."""
    first = word.split("/")[0]
    if word.startswith((".", "build/")):  # not a path of the tree
        return False
    return "/" in word and re.fullmatch(r"[\w.-]+(/[\w.-]*)+", word) and (ROOT / first).is_dir()


def is_function(word):
    return re.fullmatch(r"(\w+::)*~?\w+(\(\))?", word) and (
        "::" in word or "()" in word or re.match(r"sti_\w", word))


class Documents(unittest.TestCase):
    def test_every_relative_link_leads_somewhere(self):
        for file in documents():
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code_blocks(file.read_text())):
                if re.match(r"[a-z]+:|#", target):
                    continue
                with self.subTest(file=str(file), target=target):
                    self.assertTrue((file.parent / target.split("#")[0]).exists())

    def test_every_path_in_backticks_is_there(self):
        for file in documents():
            for word in re.findall(r"`([^`\n]+)`", without_code_blocks(file.read_text())):
                if is_path(word):
                    with self.subTest(file=str(file), path=word):
                        self.assertTrue((ROOT / word).exists())

    def test_the_life_of_an_invocation_has_eight_steps_that_name_what_is_there(self):
        text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
        section = re.search(r"^## Life of an invocation\n(.*?)(?=^## |\Z)", text,
                            re.DOTALL | re.MULTILINE)
        self.assertIsNotNone(section)
        steps = re.split(r"^\d+\. ", section[1], flags=re.MULTILINE)[1:]
        self.assertEqual(len(steps), 8)
        for number, step in enumerate(steps, 1):
            words = re.findall(r"`([^`]+)`", step)
            paths = [word for word in words if is_path(word)]
            functions = [word for word in words if is_function(word)]
            with self.subTest(step=number):
                self.assertTrue(paths and functions, "names no path or no function")
            source = "\n".join((ROOT / path).read_text() for path in paths
                               if (ROOT / path).is_file())
            for function in functions:
                with self.subTest(step=number, function=function, paths=paths):
                    called = rf"\b{re.escape(function.removesuffix('()'))}\s*\("
                    self.assertTrue(re.search(called, source), "in none of these paths")

    def test_every_option_of_a_command_line_is_one_the_program_has(self):
        for file in documents():
            for line in code_lines(file.read_text()):
                match = re.match(r"\s*(?:\$ )?(?:\S*/)?(stickyctl|sticky-llm|stickyd)\s+(.*)", line)
                if match and not re.search(r"\s(──|->)", line):
                    with self.subTest(file=str(file), line=line):
                        self.check_command_line(match[1], match[2])

    def check_command_line(self, program, rest):
        binary = BUILD / PROGRAMS[program]
        self.assertTrue(binary.exists(), f"{binary} is not built")
        words = re.split(r"\s+(?:--|#|\||>|&)(?:\s|$)", " " + rest)[0].split()
        verb = [words[0]] if words and re.fullmatch(r"[a-z]+", words[0]) else []
        shown = subprocess.run([binary, *verb, "--help"], capture_output=True, text=True,
                               timeout=20, check=False)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        known = shown.stdout + subprocess.run([binary, "--help"], capture_output=True, text=True,
                                              timeout=20, check=False).stdout
        for option in re.findall(r"(?<!\S)(--?[a-zA-Z][\w-]*)", " ".join(words)):
            self.assertTrue(re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", known),
                            f"{program} {' '.join(verb)} has no {option}")


if __name__ == "__main__":
    unittest.main()

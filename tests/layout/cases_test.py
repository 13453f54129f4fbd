"""docs/cases.md names only tests that exist, and says of every other case what it waits for."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_names():
    """Every Suite.Case of the C++ tests, every test_ method, every script test's name."""
    names = set()
    for file in (ROOT / "tests").rglob("*"):
        if file.suffix == ".cc":
            names |= {f"{suite}.{case}" for suite, case in re.findall(
                r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", file.read_text(),
                re.MULTILINE)}
        elif file.suffix == ".py":
            names |= set(re.findall(r"def (test_\w+)", file.read_text()))
        elif file.suffix == ".cmake":
            declared = r"(?:sticky_script_test\(|NAME )\s*([\w.-]+)"
            names |= set(re.findall(declared, file.read_text()))
    return names


def rows():
    for line in (ROOT / "docs" / "cases.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.fullmatch(r"[A-Z]\d\d", cells[0]):
            yield cells


class Cases(unittest.TestCase):
    def test_each_case_has_one_row_of_four_cells(self):
        seen = set()
        for cells in rows():
            with self.subTest(case=cells[0]):
                self.assertEqual(len(cells), 4)
                self.assertNotIn(cells[0], seen)
            seen.add(cells[0])
        self.assertGreater(len(seen), 100)

    def test_each_is_open_for_a_reason_or_names_tests_that_exist(self):
        names = test_names()
        for case, _, _, shown_by in rows():
            with self.subTest(case=case):
                if shown_by.startswith("open: "):
                    self.assertGreater(len(shown_by), len("open: "))
                    continue
                named = re.findall(r"`([^`]+)`", shown_by)
                self.assertTrue(named, "neither open nor shown by a test")
                for name in named:
                    self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()

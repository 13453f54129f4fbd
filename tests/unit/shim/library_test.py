"""What libstickyinvoc.so asks of the system it is loaded on, and what it shows to programs.

usage: library_test.py LIBRARY HEADER
"""

import os
import re
import subprocess
import sys
import unittest

LIBRARY, HEADER = sys.argv[1:3]
GLIBC_MAX = (2, 28)
NEEDED_ALLOWED = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def readelf(option, path):
    return subprocess.run(
        ["readelf", "--wide", option, path], check=True, capture_output=True, text=True
    ).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path)))


def glibc_versions(path):
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", path))
    return {(int(major), int(minor)) for major, minor in found}


def other_versions(path):
    names = re.findall(r"Name: (\S+)", readelf("--version-info", path))
    return {name for name in names if not re.fullmatch(r"GLIBC_[\d.]+|STICKYINVOC_0", name)}


def exported(path):
    symbols = set()
    for line in readelf("--dyn-syms", path).splitlines():
        parts = line.split()
        if len(parts) == 8 and parts[4] in ("GLOBAL", "WEAK") and parts[6] not in ("UND", "ABS"):
            symbols.add(parts[7].split("@")[0])
    return symbols


class LibraryTest(unittest.TestCase):
    def test_needs_libc_alone(self):
        self.assertIn("libc.so.6", needed(LIBRARY))
        self.assertLessEqual(needed(LIBRARY), NEEDED_ALLOWED)

    def test_needs_no_newer_glibc(self):
        versions = glibc_versions(LIBRARY)
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), GLIBC_MAX)
        library_versions = other_versions(LIBRARY) - {LIBRARY.rsplit("/", 1)[-1]}
        self.assertFalse({v for v in library_versions if v.startswith(("GLIBC", "CXX", "GCC"))})

    def test_shows_what_the_header_has_and_nothing_else(self):
        declared = set()
        for name in ("stickyinvoc.h", "build.h"):
            path = os.path.join(os.path.dirname(HEADER), name)
            with open(path, encoding="utf-8") as header:
                declared |= set(
                    re.findall(r"^STI_EXPORT[^(]*?(sti_\w+)\(", header.read(), re.MULTILINE)
                )
        self.assertGreater(len(declared), 8)
        self.assertEqual(exported(LIBRARY), declared)

    def test_has_a_versioned_name(self):
        self.assertIn("Library soname: [libstickyinvoc.so.0]", readelf("--dynamic", LIBRARY))
        self.assertIn("STICKYINVOC_0", readelf("--version-info", LIBRARY))

    def test_has_no_executable_stack(self):
        segments = readelf("--segments", LIBRARY).splitlines()
        stack = [line for line in segments if "GNU_STACK" in line]
        self.assertEqual(len(stack), 1)
        self.assertNotIn("E ", stack[0].split("0x")[-2])

    def test_these_checks_see_a_cxx_program(self):
        """Against a library that is none of this, lest the checks above pass by mistake."""
        maps = subprocess.run(["ldconfig", "-p"], check=False, capture_output=True,
                              text=True).stdout
        path = re.search(r"libstdc\+\+\.so\.6 .*=> (\S+)", maps)
        self.assertIsNotNone(path)
        self.assertGreater(needed(path[1]), {"libc.so.6"})
        self.assertGreater(len(exported(path[1])), 1000)
        self.assertTrue({v for v in other_versions(path[1]) if v.startswith("CXXABI")})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""The installed tree, as someone who has nothing else uses it: the C example built with pkg-config,
a CMake project that finds the package, and Python, all on a state of the installed daemon. Then
the tree is moved, and works where it is.

usage: install_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SOON_S = 60

CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(User LANGUAGES C CXX)
find_package(StickyInvoc 0.1 REQUIRED)
add_executable(user_c user.c)
target_link_libraries(user_c PRIVATE StickyInvoc::stickyinvoc)
add_executable(user_cxx user.cc)
set_target_properties(user_cxx PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
target_link_libraries(user_cxx PRIVATE StickyInvoc::stickyinvoc)
"""
CXX_PROGRAM = """
#include <cstdio>
#include <stickyinvoc/stickyinvoc.hpp>
int main() {
  const auto state = sticky::client::State::Attach("toy").OrThrow();
  for (const auto& tensor : state.Tensors()) std::printf("%s\\n", tensor.raw().name);
}
"""


def write_safetensors(path):
    header = {
        "a.f32": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b.bf16": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    text = json.dumps(header).encode()
    data = struct.pack("<6f", 1, 2, 3, 4, 5, 6.5) + struct.pack("<4H", *([0x3FC0] * 4))
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stk"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.prefix = self.folder / "first"
        self.run_command("cmake", "--install", BUILD, "--prefix", self.prefix)

    def run_command(self, *command, **environment):
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, **self.environment(), **environment},
            capture_output=True,
            text=True,
            timeout=SOON_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def environment(self):
        return {
            "STICKYINVOC_SOCKET": str(self.folder / "run" / "s"),
            "PKG_CONFIG_PATH": str(self.library_folder() / "pkgconfig"),
        }

    def library_folder(self):
        found = list(self.prefix.rglob("libstickyinvoc.so"))
        return found[0].parent if found else self.prefix

    def start_daemon(self):
        (self.folder / "run").mkdir(mode=0o700)
        log = open(self.folder / "log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        daemon = subprocess.Popen(
            [self.prefix / "bin" / "stickyd"],
            env={**os.environ, **self.environment()},
            stdout=log,
            stderr=log,
        )
        self.addCleanup(daemon.wait, SOON_S)
        self.addCleanup(daemon.terminate)
        write_safetensors(self.folder / "toy.safetensors")
        template = self.folder / "toy.yaml"
        template.write_text("name: toy\nsource:\n  path: toy.safetensors\n", encoding="utf-8")
        while not (self.folder / "run" / "s").exists():
            self.assertIsNone(daemon.poll(), (self.folder / "log").read_text(encoding="utf-8"))
            os.sched_yield()
        self.run_command(self.prefix / "bin" / "stickyctl", "load", template, "--wait")

    def build_example(self, name, example="sum"):
        """With a plain C compiler and what pkg-config says; gives the program's path."""
        program = self.folder / name
        flags = self.run_command("pkg-config", "--cflags", "--libs", "stickyinvoc").split()
        source = self.prefix / "share" / "stickyinvoc" / "examples" / f"{example}.c"
        strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        self.run_command("cc", *strict, source, *flags, "-lm", "-o", program)
        return program

    def check_builders(self):
        """docs/builders.md, typed in; by itself a builder names its own state."""
        path = {"LD_LIBRARY_PATH": str(self.library_folder())}
        ctl = self.prefix / "bin" / "stickyctl"
        table = self.build_example("build_table", "build_table")
        index = self.build_example("build_kmer_index", "build_kmer_index")
        find = self.build_example("find_kmer", "find_kmer")
        total = self.build_example("sum")
        self.run_command(ctl, "build", "--name", "roots", "--", table, 1000, **path)
        self.run_command(table, 100, "few-roots", **path)
        fasta = self.folder / "genome.fa"
        fasta.write_text(">one\nACGTACGTTAGC\n>two\nTTACGTACGTTAGN\n", encoding="utf-8")
        self.run_command(ctl, "build", "--name", "genome", "--", index, fasta, **path)

        for state, count in [("roots", 1000), ("few-roots", 100)]:
            self.assertIn(f"{count} elements", self.run_command(total, state, "sqrt", **path))
        self.assertEqual(self.run_command(find, "genome", "ACGTACGTTAG", "AAAAAAAAAAA", **path),
                         "ACGTACGTTAG 1 16\nAAAAAAAAAAA\n")

    def check_all(self, name):
        path = {"LD_LIBRARY_PATH": str(self.library_folder())}
        program = self.build_example(name)
        self.assertEqual(
            self.run_command(program, "toy", "a.f32", **path), "a.f32: 6 elements, sum 21.500000\n"
        )
        self.assertEqual(
            self.run_command(program, "toy", "b.bf16", **path), "b.bf16: 4 elements, sum 6.000000\n"
        )
        code = "import stickyinvoc as s; print(s.attach('toy').tensor('a.f32').sum())"
        packages = {"PYTHONPATH": str(self.prefix / "share" / "stickyinvoc" / "python")}
        self.assertEqual(self.run_command(sys.executable, "-B", "-c", code, **packages), "21.5\n")

    def check_python_builder(self):
        builder = self.prefix / "share" / "stickyinvoc" / "examples" / "build_table.py"
        packages = {"PYTHONPATH": str(self.prefix / "share" / "stickyinvoc" / "python")}
        said = self.run_command(sys.executable, "-B", builder, "py-roots", "100", **packages)
        self.assertEqual(said, "100 square roots are shared\n")

    def check_cmake_package(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(CMAKE_PROJECT, encoding="utf-8")
        (project / "user.cc").write_text(CXX_PROGRAM, encoding="utf-8")
        example = self.prefix / "share" / "stickyinvoc" / "examples" / "sum.c"
        shutil.copy(example, project / "user.c")
        build = project / "build"
        self.run_command(
            "cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}"
        )
        self.run_command("cmake", "--build", build)
        self.assertEqual(self.run_command(build / "user_cxx"), "a.f32\nb.bf16\n")
        self.assertIn("sum 21.5", self.run_command(build / "user_c", "toy", "a.f32"))

    def test_what_the_page_on_builders_quotes_of_the_examples_is_there(self):
        page = (SOURCE / "docs" / "builders.md").read_text(encoding="utf-8")
        field = page[page.index("## Another field"):]
        folder = self.prefix / "share" / "stickyinvoc" / "examples"
        code = " ".join(" ".join(file.read_text(encoding="utf-8").split())
                        for file in sorted(folder.glob("*.c")))
        quotes = re.findall(r"^```c\n(.*?)^```", field, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(quotes), 2)
        for quote in quotes:
            self.assertIn(" ".join(quote.split()), code)

    def test_the_tree_has_what_users_and_admins_need(self):
        version = (self.prefix / "include" / "stickyinvoc" / "stickyinvoc.h").read_text()
        version = ".".join(re.search(rf"STI_VERSION_{part} (\d+)", version)[1]
                           for part in ("MAJOR", "MINOR", "PATCH"))
        library = self.library_folder()
        self.assertEqual(os.readlink(library / "libstickyinvoc.so"), "libstickyinvoc.so.0")
        self.assertEqual(os.readlink(library / "libstickyinvoc.so.0"),
                         f"libstickyinvoc.so.{version}")
        self.assertEqual(
            self.run_command("pkg-config", "--modversion", "stickyinvoc").strip(), version)
        for path in ["include/stickyinvoc/stickyinvoc.hpp", "libexec/stickyinvoc/sticky-loader",
                     "etc/stickyinvoc/stickyinvoc.yaml", "share/man/man8/stickyd.8",
                     "share/man/man1/stickyctl.1", "share/man/man1/sticky-llm.1",
                     "share/stickyinvoc/examples/template.example.yaml",
                     "share/stickyinvoc/examples/build_table.py",
                     *(f"share/stickyinvoc/python/stickyinvoc/{module}.py"
                       for module in ("_build", "torch", "transformers", "_vocabulary"))]:
            with self.subTest(path):
                self.assertTrue((self.prefix / path).is_file())
        if (SOURCE / "systemd" / "CMakeLists.txt").exists():
            for unit in ["stickyd.service", "stickyd.socket"]:
                with self.subTest(unit):
                    self.assertTrue(list(self.prefix.rglob(unit)))
        self.assertIn(version, self.run_command(self.prefix / "bin" / "stickyd", "--version"))
        self.assertIn(version, self.run_command(self.prefix / "bin" / "stickyctl", "version"))
        for program in sorted((self.prefix / "bin").iterdir()):
            with self.subTest(program.name):
                self.assertIn(program.name, self.run_command(program, "--help"))

    def test_the_installed_tree_works_and_may_be_moved(self):
        self.start_daemon()
        self.check_all("before")
        self.check_builders()
        self.check_python_builder()
        self.check_cmake_package()
        moved = self.folder / "second"
        self.prefix.rename(moved)
        self.prefix = moved
        self.check_all("after")
        loaded = self.run_command("ldd", moved / "bin" / "stickyctl")
        self.assertNotIn("not found", loaded)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

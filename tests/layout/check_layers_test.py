"""tools/dev/check_layers.py finds every kind of wrong arrow, and nothing in a right tree."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))
import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def complaints(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return list(check_layers.violations(pathlib.Path(folder)))

    def test_this_tree_has_no_violation(self):
        self.assertEqual(list(check_layers.violations(ROOT)), [])

    def test_an_arrow_that_the_table_has_is_fine(self):
        self.assertEqual(self.complaints({
            "base/fd.h": "", "device/arena.cc": '#include "base/fd.h"\n',
            "daemon/io/loop.cc": "#include <uv.h>\n",
        }), [])

    def test_an_include_against_the_arrows_is_named_with_its_line(self):
        found = self.complaints({"engine/model.h": "",
                                 "daemon/core/x.cc": '// why\n#include "engine/model.h"\n'})
        self.assertEqual(found, ["daemon/core/x.cc:2: daemon/core may not include engine"])

    def test_the_pure_core_may_not_reach_into_the_io_beside_it(self):
        found = self.complaints({"daemon/io/loop.h": "",
                                 "daemon/core/x.h": '#include "daemon/io/loop.h"\n'})
        self.assertEqual(found, ["daemon/core/x.h:1: daemon/core may not include daemon/io"])

    def test_a_library_has_one_door(self):
        found = self.complaints({"daemon/core/x.cc": "#include <uv.h>\n",
                                 "weights/x.cc": "#include <yaml-cpp/yaml.h>\n",
                                 "tools/stickyctl/x.cc": '#include "flatbuffers/flatbuffers.h"\n'})
        self.assertEqual(found, [
            "daemon/core/x.cc:1: uv.h belongs in daemon/io",
            "tools/stickyctl/x.cc:1: flatbuffers/flatbuffers.h belongs in flatbuffers/wire_, "
            "tests/unit/flatbuffers/wire_, tests/layout/",
            "weights/x.cc:1: yaml-cpp/yaml.h belongs in config"])

    def test_a_room_below_an_allowed_one_can_be_closed(self):
        found = self.complaints({"weights/files/resolve.h": "",
                                 "engine/x.cc": '#include "weights/files/resolve.h"\n'})
        self.assertEqual(found, ["engine/x.cc:1: engine may not include weights/files"])

    def test_a_source_in_no_room_is_an_error(self):
        self.assertEqual(self.complaints({"misc/x.cc": ""}),
                         ["misc/x.cc: in no room of tools/dev/check_layers.py"])

    def test_a_target_that_links_against_the_arrows_is_named(self):
        found = self.complaints({
            "engine/CMakeLists.txt": "sticky_library(engine SOURCES model.cc DEPS sticky::base)\n",
            "daemon/CMakeLists.txt": "# comment\nsticky_program(stickyd SOURCES main.cc\n"
                                     "  DEPS sticky::engine)\n"})
        self.assertEqual(found, ["daemon/CMakeLists.txt:2: stickyd: daemon may not link "
                                 "sticky::engine of engine"])

    def test_a_target_that_links_a_library_past_its_door_is_named(self):
        found = self.complaints({
            "daemon/CMakeLists.txt": "sticky_library(daemon_core SOURCES core/x.cc)\n"
                                     "target_link_libraries(daemon_core PRIVATE yaml-cpp)\n"})
        self.assertEqual(found,
                         ["daemon/CMakeLists.txt:2: daemon_core: yaml-cpp belongs in config"])

    def test_a_target_of_a_folder_below_is_of_that_room(self):
        found = self.complaints({
            "daemon/CMakeLists.txt": "sticky_library(core SOURCES core/x.cc DEPS sticky::io)\n"
                                     "sticky_library(io SOURCES io/x.cc DEPS sticky::core)\n"})
        self.assertEqual(found, ["daemon/CMakeLists.txt:1: core: daemon/core may not link "
                                 "sticky::io of daemon/io"])


if __name__ == "__main__":
    unittest.main()

"""tools/dev/check_style.py finds a planted break of each limit, and none in code that keeps it."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))
import check_style  # noqa: E402

HEADER = ("// What it is.\n//\n// Thread: any thread.\n\n#ifndef STICKY_BASE_X_H_\n"
          "#define STICKY_BASE_X_H_\n%s\n#endif\n")


def function(lines, head="int F(int a)"):
    """The text of a function of exactly `lines` lines."""
    return head + " {\n" + "  a += 1;\n" * (lines - 2) + "}\n"


class CheckStyle(unittest.TestCase):
    def complaints(self, text, path="base/x.cc"):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True)
            file.write_text(text)
            return list(check_style.violations(pathlib.Path(folder)))

    def test_this_tree_has_no_violation(self):
        self.assertEqual(list(check_style.violations(ROOT)), [])

    def test_a_line_of_101_columns(self):
        self.assertEqual(self.complaints("/" * 100 + "\n"), [])
        self.assertEqual(self.complaints("\n" + "/" * 101 + "\n"),
                         ["base/x.cc:2: 101 columns; at most 100"])

    def test_columns_are_characters_not_bytes(self):
        self.assertEqual(self.complaints("//" + "ü" * 98 + "\n"), [])

    def test_a_file_of_501_lines_and_a_test_of_801(self):
        self.assertEqual(self.complaints("\n" * 500), [])
        self.assertEqual(self.complaints("\n" * 501),
                         ["base/x.cc:501: file of 501 lines; at most 500"])
        self.assertEqual(self.complaints("\n" * 800, "tests/unit/x_test.cc"), [])
        self.assertEqual(self.complaints("\n" * 801, "tests/unit/x_test.cc"),
                         ["tests/unit/x_test.cc:801: file of 801 lines; at most 800"])

    def test_a_function_of_71_lines(self):
        self.assertEqual(self.complaints(function(70)), [])
        self.assertEqual(self.complaints("\n" + function(71)),
                         ["base/x.cc:2: function of 71 lines; at most 70"])

    def test_every_form_of_function_is_seen(self):
        heads = ["Foo::Foo(int a) : a_(a), b_{1}", "auto F(int a) -> Result<int>",
                 "bool Foo::operator==(const Foo& o) const", "TEST(Suite, Case)",
                 "template <typename T>\nvoid F(T a) noexcept", "int F(int a) const override"]
        for head in heads:
            with self.subTest(head):
                self.assertEqual(len(self.complaints(function(80, head))), 1)

    def test_a_long_type_or_table_or_namespace_is_no_function(self):
        for head in ["struct S", "class C : public B", "namespace sticky", "const int kTable[] ="]:
            with self.subTest(head):
                self.assertEqual(self.complaints(function(90, head)), [])

    def test_nesting_of_four(self):
        three = ("void F() {\n  for (;;) {\n    if (a) {\n      while (b) {\n"
                 "%s      }\n    }\n  }\n}\n")
        self.assertEqual(self.complaints(three % ""), [])
        self.assertEqual(self.complaints(three % "        if (c) {\n        }\n"),
                         ["base/x.cc:5: nested deeper than 3"])

    def test_else_if_chains_do_not_nest(self):
        chain = "void F() {\n  if (a) {\n  }" + " else if (b) {\n  }" * 5 + "\n}\n"
        self.assertEqual(self.complaints(chain), [])

    def test_eight_parameters_defined_or_declared(self):
        seven = "M<int, K> a, int b, int c, F<void(int, int)> d, int e, int f, int g"
        both = "void F({0}) {{}}\nvoid G({0});\n"
        self.assertEqual(self.complaints(both.format(seven)), [])
        self.assertEqual(self.complaints(both.format(seven + ", int h")), [
            "base/x.cc:1: 8 parameters; at most 7, take an options struct",
            "base/x.cc:2: 8 parameters; at most 7, take an options struct"])

    def test_a_header_has_an_opening_comment_a_thread_line_and_its_guard(self):
        self.assertEqual(self.complaints(HEADER % "", "base/x.h"), [])
        self.assertEqual(self.complaints("#pragma once\n", "base/x.h"), [
            "base/x.h:1: a header opens with a comment that says what it is",
            "base/x.h:1: the include guard is not STICKY_BASE_X_H_"])
        self.assertEqual(self.complaints((HEADER % "").replace("Thread", "Threads"), "base/x.h"),
                         ["base/x.h:1: the opening comment has no `Thread:` line"])

    def test_a_header_that_is_included_many_times_has_no_guard(self):
        self.assertEqual(self.complaints("// What it is.\n// Thread: any.\n", "base/x_inl.h"), [])

    def test_using_namespace_in_a_header(self):
        self.assertEqual(self.complaints(HEADER % "using namespace std;", "base/x.h"),
                         ["base/x.h:7: `using namespace` in a header"])
        self.assertEqual(self.complaints(HEADER % "// no using namespace here", "base/x.h"), [])

    def test_a_todo_needs_a_number(self):
        self.assertEqual(self.complaints("// TODO" + "(issue 7): widen\n"), [])
        self.assertEqual(len(self.complaints("// TODO" + ": widen\n")), 1)
        self.assertEqual(len(self.complaints("// FIX" + "ME\n")), 1)

    def test_assert_is_refused_and_its_relatives_are_not(self):
        self.assertEqual(len(self.complaints("void F() { assert(a); }\n")), 1)
        self.assertEqual(self.complaints("static_assert(a);\n// assert(a)\n"), [])

    def test_a_library_room_does_not_print_and_a_program_may(self):
        for call in ["std::cout << 1", 'printf("x")', 'std::fprintf(stderr, "x")', "perror(a)"]:
            text = "void F() { " + call + "; }\n"
            with self.subTest(call):
                self.assertEqual(len(self.complaints(text, "weights/x.cc")), 1)
                self.assertEqual(self.complaints(text, "tools/stickyctl/x.cc"), [])
        self.assertEqual(self.complaints("void F() { snprintf(a, 1, b); }\n"), [])

    def test_braces_in_literals_and_comments_do_not_count(self):
        self.assertEqual(self.complaints(
            "void F() {\n  a = \"{{{\"; // {{\n  b = '{'; /* { */\n  c = R\"({{)\";\n}\n"
            + function(70)), [])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Fails when C or C++ source breaks a limit of the project's style (CONTRIBUTING.md lists them).

Usage: check_style.py [ROOT]. Prints one line a violation and exits 1, or "style: ok".

It reads text, not syntax trees: comments and literals are blanked out first, then braces and
parentheses are matched. clang-tidy (tools/check tidy) sees what this cannot.
"""

import pathlib
import re
import sys

COLUMNS = 100
FILE_LINES = 500
TEST_FILE_LINES = 800
FUNCTION_LINES = 70
NESTING = 3
PARAMETERS = 7
SOURCES = {".h", ".c", ".cc", ".cu", ".cuh"}
TEXTS = SOURCES | {".py"}  # what the column limit holds for
SKIPPED = ("build/", ".git/", "tests/data/")
# Rooms that are libraries: they return errors, and never write to a terminal or a log.
LIBRARY_ROOMS = ("base/", "config/", "daemon/core/", "device/", "engine/", "flatbuffers/", "shim/",
                 "tools/client/", "weights/")
# The one place that may: it reports a bug of ours on the way to abort(). Examples are programs.
PRINTERS = ("base/check.cc", "shim/examples/")
PRINTING = re.compile(r"\bstd::(cout|cerr|clog)\b|(?<!\w)(f?printf|f?puts|perror|syslog)\s*\(")
CONTROL = {"if", "for", "while", "switch", "do", "else", "try", "catch"}

LITERAL_OR_COMMENT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)


def blank(text):
    """`text` with comments, literals and preprocessor lines blanked, line breaks kept."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match[0])

    text = LITERAL_OR_COMMENT.sub(spaces, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.MULTILINE)


def parameters(head):
    """How many parameters the last parenthesised list of a declaration's head has, or 0."""
    head = re.sub(r"\)\s*:[^:].*$", ")", head, flags=re.DOTALL)  # a constructor's initialisers
    end = head.rfind(")")
    if end < 0:
        return 0
    depth = 0
    for start in range(end, -1, -1):
        depth += (head[start] == ")") - (head[start] == "(")
        if depth == 0:
            break
    inside = head[start + 1:end]
    if not inside.strip():
        return 0
    count, depth = 1, 0
    for at, char in enumerate(inside):
        arrow = char == ">" and inside[at - 1:at] == "-"
        depth += (char in "(<[{") - (char in ")>]}" and not arrow)
        count += char == "," and depth == 0
    return count


def kind_of_block(head):
    """What a `{` after `head` opens: control, function, lambda, type, initialiser or other."""
    head = head.strip()
    word = re.match(r"[a-z_]+", head)
    if word and word[0] in CONTROL:
        return "control"
    if re.match(r"(template\s*<.*>\s*)?(namespace|class|struct|union|enum|extern)\b", head,
                re.DOTALL) and not re.search(r"\)\s*(const|noexcept|override|final)*$", head):
        return "type"
    if re.search(r"\[[^\[\]]*\]\s*(\([^{}]*\))?\s*(mutable|noexcept)?\s*(->[^{}]*)?$", head):
        return "lambda"
    if re.search(r"\)\s*((const|noexcept|override|final|mutable|&&?)\s*)*(->[^{}=]*)?$", head):
        bare = re.sub(r"\([^()]*\)|operator\s*[=!<>]+", "", head)
        return "other" if "=" in bare else "function"
    if re.search(r"\)\s*(noexcept\s*)?:[^:?]", head):
        return "initialiser" if re.search(r"[\w>]$", head) else "function"
    return "other"


class Blocks:
    """Walks the braces of one blanked file and collects what breaks a limit."""

    def __init__(self, text):
        self.text = text
        self.found = []  # (line, complaint)
        self.open = []  # (kind, line of its head)

    def line(self, at):
        return self.text.count("\n", 0, at) + 1

    def in_function(self):
        return any(kind == "function" for kind, _ in self.open)

    def walk(self):
        start, parens, outer = 0, 0, []
        for at, char in enumerate(self.text):
            parens += (char == "(") - (char == ")")
            kind = None
            if char == "{":
                kind = self.enter(start, at)
                outer.append(parens)
                parens = 0
            elif char == "}":
                kind = self.leave(at)
                parens = outer.pop() if outer else 0
            elif char == ";" and parens <= 0 and not self.in_function():
                self.declaration(start, at)
            if (char in "{}" and kind != "initialiser") or (char == ";" and parens <= 0):
                start = at + 1
        return self.found

    def enter(self, start, at):
        head = re.sub(r"\b(public|private|protected)\s*:", "", self.text[start:at])
        kind = kind_of_block(head)
        if kind == "function" and self.in_function():
            kind = "other"
        first = start + len(self.text[start:at]) - len(self.text[start:at].lstrip())
        line = self.line(first)
        if kind == "function":
            self.too_many(head, line)
        self.open.append((kind, line))
        if kind == "control":
            inner = self.open[max((i for i, b in enumerate(self.open) if b[0] in
                                   ("function", "lambda")), default=0):]
            if sum(k == "control" for k, _ in inner) > NESTING:
                self.found.append((line, f"nested deeper than {NESTING}"))
        return kind

    def leave(self, at):
        if not self.open:
            return None
        kind, line = self.open.pop()
        lines = self.line(at) - line + 1
        if kind == "function" and lines > FUNCTION_LINES:
            self.found.append((line, f"function of {lines} lines; at most {FUNCTION_LINES}"))
        return kind

    def declaration(self, start, at):
        head = self.text[start:at]
        if re.search(r"\w\s*\(", head) and "=" not in head.split("(")[0]:
            self.too_many(head, self.line(start + len(head) - len(head.lstrip())))

    def too_many(self, head, line):
        count = parameters(head)
        if count > PARAMETERS:
            most = f"at most {PARAMETERS}, take an options struct"
            self.found.append((line, f"{count} parameters; {most}"))


def header(path, text):
    """Complaints about what every header must have."""
    comment = re.match(r"((//[^\n]*\n)+)|(/\*.*?\*/\n)", text, re.DOTALL)
    if not comment:
        yield 1, "a header opens with a comment that says what it is"
    elif "Thread:" not in comment[0] and not path.startswith("tests/"):
        yield 1, "the opening comment has no `Thread:` line"
    public = "shim/include/"
    name = path.removeprefix(public) if path.startswith(public) else "sticky/" + path
    guard = re.sub(r"\W", "_", name.upper()) + "_"
    many_times = path.endswith("_inl.h")  # included more than once on purpose
    if not many_times and f"#ifndef {guard}\n#define {guard}\n" not in text:
        yield 1, f"the include guard is not {guard}"
    for number, line in enumerate(blank(text).splitlines(), 1):
        if re.search(r"\busing\s+namespace\b", line):
            yield number, "`using namespace` in a header"


def words(path, text):
    """Complaints about words that do not belong."""
    code = blank(text).splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(issue \d+\):)", line):
            yield number, "a TODO without a number: write TODO(issue N): or do it"
        bare = code[number - 1] if number <= len(code) else ""
        if re.search(r"(?<![\w.])assert\s*\(", bare):
            yield number, "assert() vanishes in release builds: STICKY_CHECK, or a Result for input"
        if path.startswith(LIBRARY_ROOMS) and not path.startswith(PRINTERS):
            if PRINTING.search(bare):
                yield number, "a library room writes to no terminal or log; return an Error"


def in_source(path, text):
    lines = text.count("\n") + (not text.endswith("\n"))
    most = TEST_FILE_LINES if path.startswith("tests/") else FILE_LINES
    if lines > most:
        yield lines, f"file of {lines} lines; at most {most}"
    if path.endswith((".h", ".cuh")):
        yield from header(path, text)
    yield from words(path, text)
    yield from Blocks(blank(text)).walk()


def violations(root):
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in TEXTS or path.startswith(SKIPPED) or not file.is_file():
            continue
        text = file.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS:
                yield f"{path}:{number}: {len(line)} columns; at most {COLUMNS}"
        if file.suffix in SOURCES:
            for number, complaint in in_source(path, text):
                yield f"{path}:{number}: {complaint}"


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    found = list(violations(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here))
    print("\n".join(found) or "style: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

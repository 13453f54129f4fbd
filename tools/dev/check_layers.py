#!/usr/bin/env python3
"""Fails when a file includes, or a target links, a room or library that its room may not use.

Usage: check_layers.py [ROOT]. Prints one line a violation and exits 1, or "layers: ok".
"""

import pathlib
import re
import sys

# room -> rooms it may include from (besides itself). The longest matching path prefix wins.
ROOMS = {
    "base": [],
    "flatbuffers": ["base"],
    "config": ["base"],
    "device": ["base"],
    "weights": ["base"],
    "weights/files": ["base", "weights"],
    "engine": ["base", "weights"],
    "engine/cpu": ["base", "engine"],
    "engine/tokenizer": ["base", "weights"],
    "daemon/core": ["base", "flatbuffers"],
    "daemon/io": ["base", "flatbuffers", "device", "daemon/core"],
    "daemon/keeper": ["base"],
    "daemon/load": ["base", "flatbuffers", "device", "weights"],
    "daemon": ["base", "config", "device", "flatbuffers", "daemon/core", "daemon/io"],
    "shim": ["base", "flatbuffers", "shim/include"],
    "shim/include": [],
    "shim/examples": [],
    "tools/client": ["base", "flatbuffers", "config", "weights"],
    "tools/stickyctl": ["base", "flatbuffers", "config", "daemon/load", "weights", "tools/client"],
    "tools/sticky-llm": ["base", "weights", "daemon/load", "engine", "shim/include",
                         "tools/client"],
    "bench": ["base", "device", "flatbuffers", "daemon", "engine", "weights", "shim", "tools"],
    "tests": ["base", "device", "flatbuffers", "config", "weights", "daemon", "shim", "engine",
              "tools"],
}
# Rooms below an allowed one that are not allowed with it.
NOT_IMPLIED = {("engine", "weights/files"), ("engine/tokenizer", "weights/files")}
# library -> path prefixes that may include it: each has one door.
LIBRARIES = {
    r"uv\.h": ["daemon/io"],
    r"boost/interprocess": ["device/"],
    r"boost/(?!interprocess)": ["tests/testing"],
    r"flatbuffers/(?!wire_)|wire_\w+_generated\.h":
        ["flatbuffers/wire_", "tests/unit/flatbuffers/wire_", "tests/layout/"],
    r"yaml-cpp/": ["config"],
    r"openssl/": ["weights/sha256"],
    r"nlohmann/": ["weights", "tools", "tests"],
    r"xxhash\.h": ["config", "daemon/load"],
    r"pcre2\.h|unicode/": ["engine/tokenizer"],
    r"liburing": ["daemon/load"],
    r"dnnl|oneapi/|omp\.h": ["engine/cpu"],
    r"CLI/": ["tools"],
    r"stickyinvoc/": ["shim", "tools/sticky-llm", "tests", "bench"],
    r"g(test|mock)/": ["tests"],
    r"benchmark/": ["bench"],
}
# The same doors, under the names that CMake links.
LINKED = {
    r"PkgConfig::LIBUV": ["daemon/io"],
    r"flatbuffers::flatbuffers": ["flatbuffers", "tests"],
    r"yaml-cpp": ["config"],
    r"OpenSSL::": ["weights"],
    r"nlohmann_json::": ["weights", "tools", "tests"],
    r"CLI11::": ["tools"],
    r"(?i:pkgconfig::(pcre2|icu).*|icu::.*)": ["engine/tokenizer"],
    r"(?i:dnnl.*|openmp::.*)": ["engine/cpu"],
    r"GTest::": ["tests"],
    r"benchmark::": ["bench"],
}
SOURCES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh"}
SKIPPED = ("build/", ".git/", "tests/data/")
DECLARATION = re.compile(
    r"\b(?:sticky_(?:library|program|module|test)|add_library|add_executable)\(\s*([\w-]+)([^)]*)\)"
    r"|\btarget_link_libraries\(\s*([\w-]+)([^)]*)\)")


def room_of(path):
    found = [room for room in ROOMS if path == room or path.startswith(room + "/")]
    return max(found, key=len, default=None)


def may_include(room, other):
    if other == room or (room, other) in NOT_IMPLIED:
        return other == room
    return any(other == ok or other.startswith(ok + "/") for ok in ROOMS.get(room, []))


def files(root, wanted):
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if wanted(file) and not path.startswith(SKIPPED):
            yield path, file.read_text()


def wrong_includes(root):
    for path, text in files(root, lambda file: file.suffix in SOURCES):
        room = room_of(path)
        if room is None:
            yield f"{path}: in no room of tools/dev/check_layers.py"
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if match:
                for complaint in wrong_include(root, path, room, match[1]):
                    yield f"{path}:{number}: {complaint}"


def wrong_include(root, path, room, target):
    if (root / target).exists():
        other = room_of(target)
        if other and not may_include(room, other):
            yield f"{room} may not include {other}"
        return
    name = target.removeprefix("flatbuffers/") if target.endswith("_generated.h") else target
    for library, homes in LIBRARIES.items():
        if re.match(library, name) and not path.startswith(tuple(homes)):
            yield f"{target} belongs in {', '.join(homes)}"


def targets(root):
    """(name, room, what it links, where) of each target declaration, and what is linked later.

    A target belongs to the room of its first source."""
    room = {}
    for path, text in files(root, lambda file: file.name == "CMakeLists.txt"
                            or file.suffix == ".cmake"):
        text = re.sub(r"#[^\n]*", "", text)
        folder = re.sub(r"(^|/)[^/]*$", "", path)
        folder = "tests" if folder == "tests/cmake" else folder
        for match in DECLARATION.finditer(text):
            name, words = match[1] or match[3], (match[2] or match[4] or "").split()
            if match[1]:
                source = next((w for w in words if re.search(r"\.(c|cc|cu)$", w)), "CMakeLists.txt")
                room[name] = room_of(f"{folder}/{source}")
            where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            yield name, room.get(name), words, where


def is_ours(word):
    return word.startswith("sticky::") or word == "stickyinvoc"


def wrong_links(root):
    declared = list(targets(root))
    home = {name: room for name, room, _, _ in declared if room}
    for name, room, words, where in declared:
        if room is None:
            continue
        for word in words:
            word = word.strip('"')
            other = home.get(word.removeprefix("sticky::")) if is_ours(word) else None
            header_only = word == "stickyinvoc" and may_include(room, "shim/include")
            if other and not may_include(room, other) and not header_only:
                yield f"{where}: {name}: {room} may not link {word} of {other}"
            for library, homes in LINKED.items():
                if re.match(library, word) and not room.startswith(tuple(homes)):
                    yield f"{where}: {name}: {word} belongs in {', '.join(homes)}"


def violations(root):
    yield from wrong_includes(root)
    yield from wrong_links(root)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    found = list(violations(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here))
    print("\n".join(found) or "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

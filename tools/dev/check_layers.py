#!/usr/bin/env python3
"""Fails when a file includes a room, or a third-party library, that its own room may not use.

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
    "daemon/load": ["base", "flatbuffers", "device", "weights"],
    "daemon": ["base", "config", "device", "flatbuffers", "daemon/core", "daemon/io"],
    "shim": ["base", "flatbuffers", "shim/include"],
    "shim/include": [],
    "shim/examples": [],
    "tools/client": ["base", "flatbuffers", "config", "weights"],
    "tools/stickyctl": ["base", "flatbuffers", "config", "weights", "tools/client"],
    "tools/sticky-llm": ["base", "weights", "daemon/load", "engine", "shim/include", "tools/client"],
    "bench": ["base", "device", "flatbuffers", "daemon", "engine", "weights", "tools"],
    "tests": ["base", "device", "flatbuffers", "config", "weights", "daemon", "shim", "engine", "tools"],
}
# Rooms below an allowed one that are not allowed with it.
NOT_IMPLIED = {("engine", "weights/files"), ("engine/tokenizer", "weights/files")}
# library -> path prefixes that may include it: each has one door.
LIBRARIES = {
    r"uv\.h": ["daemon/io"],
    r"boost/interprocess": ["device/"],
    r"boost/(?!interprocess)": ["tests/testing"],
    r"flatbuffers/(?!wire_)|wire_\w+_generated\.h": ["flatbuffers/wire_", "tests/unit/flatbuffers/wire_", "tests/layout/"],
    r"yaml-cpp/": ["config"],
    r"nlohmann/": ["weights", "tools", "tests"],
    r"xxhash\.h": ["daemon/load", "tools/client"],
    r"pcre2\.h|unicode/": ["engine/tokenizer"],
    r"liburing": ["daemon/load"],
    r"dnnl|oneapi/|omp\.h": ["engine/cpu"],
    r"CLI/": ["tools"],
    r"stickyinvoc/": ["shim", "tools/sticky-llm", "tests", "bench"],
    r"g(test|mock)/": ["tests"],
    r"benchmark/": ["bench"],
}
SOURCES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh"}
SKIPPED = ("build/", ".git/")


def room_of(path):
    found = [room for room in ROOMS if path == room or path.startswith(room + "/")]
    return max(found, key=len, default=None)


def may_include(room, other):
    if other == room or (room, other) in NOT_IMPLIED:
        return other == room
    return any(other == ok or other.startswith(ok + "/") for ok in ROOMS.get(room, []))


def violations(root):
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in SOURCES or path.startswith(SKIPPED):
            continue
        room = room_of(path)
        if room is None:
            yield f"{path}: in no room of tools/dev/check_layers.py"
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if not match:
                continue
            target = match[1]
            inside = (root / target).exists()
            other = room_of(target) if inside else None
            if other and not may_include(room, other):
                yield f"{path}:{number}: {room} may not include {other}"
            for library, homes in LIBRARIES.items():
                if not inside and re.match(library, target.removeprefix("flatbuffers/") if target.endswith("_generated.h") else target):
                    if not path.startswith(tuple(homes)):
                        yield f"{path}:{number}: {target} belongs in {', '.join(homes)}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = list(violations(root))
    print("\n".join(found) or "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

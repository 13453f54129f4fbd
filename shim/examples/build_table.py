"""A builder: makes a table of square roots once, for every later process on this node.

    export PYTHONPATH=<prefix>/share/stickyinvoc/python
    python3 build_table.py roots 1000000
    python3 build_table.py roots 1000000      # says that it is there already
    ./sum roots sqrt                          # the C example reads it

Under `stickyctl build --name roots -- python3 build_table.py - 1000000` the name comes from there.
"""

import sys

import numpy

import stickyinvoc

VERSION = 1  # another one makes another table


def main(arguments):
    if len(arguments) != 2 or not arguments[1].isdigit():
        print("usage: build_table.py STATE|- COUNT", file=sys.stderr)
        return 64
    name, count = arguments[0], int(arguments[1])
    options = {} if name == "-" else {"recipe": f"square roots {VERSION} {count}"}
    try:
        with stickyinvoc.build(None if name == "-" else name, wait=60, **options) as build:
            if build.is_there:
                print("the table is there already")
                return 0
            roots = build.array("sqrt", count, "float32")
            numpy.sqrt(numpy.arange(count, dtype="float32"), out=roots)
    except stickyinvoc.Error as error:
        print(f"build_table.py: {error}", file=sys.stderr)
        return 1
    print(f"{count} square roots are shared")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

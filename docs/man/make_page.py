#!/usr/bin/env python3
"""Makes a manual page: what a program says of itself goes into the page that is written by hand.

Usage: make_page.py PAGE.in PROGRAM EXIT_CODES.md VERSION > PAGE

@HELP@ becomes what PROGRAM --help prints, @COMMANDS@ the help of each command that it lists,
@EXIT_STATUS@ the table of exit codes; so no option can be missing, or be there no more.
"""

import pathlib
import re
import subprocess
import sys


def help_of(program, *words):
    """With its bare name as argv[0], wherever it was built."""
    shown = subprocess.run([program.name, *words, "--help"], executable=program,
                           capture_output=True, text=True, timeout=20, check=True)
    return shown.stdout.rstrip() + "\n"


def commands(program):
    """The names in the list of commands: lines of two blanks, a word, two blanks and more text."""
    return re.findall(r"^  ([a-z]+)  +\S", help_of(program), flags=re.MULTILINE)


def escaped(text):
    """`text` for roff, letter for letter."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def verbatim(text):
    return f".nf\n{escaped(text)}.fi\n"


def exit_status(document):
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", document.read_text(), re.MULTILINE)
    return "".join(f".TP\n.B {code}\n{escaped(meaning)}\n" for code, meaning in rows)


def page(template, program, document, version):
    parts = {
        "@HELP@\n": verbatim(help_of(program)),
        "@COMMANDS@\n": "".join(f".SS {name}\n" + verbatim(help_of(program, name))
                                for name in commands(program)),
        "@EXIT_STATUS@\n": exit_status(document),
        "@VERSION@": version,
    }
    text = template.read_text()
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def main():
    template, program, document = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    sys.stdout.write(page(template, program, document, sys.argv[4]))


if __name__ == "__main__":
    main()

"""The Python that has the packages of tools/dev/python_packages.txt, for tests that need them."""

import pathlib
import subprocess
import sys

INSTALL_S = 300
SKIPPED = 77  # what ctest takes for "skipped"


def python_with_packages():
    """The path of that interpreter, made when it is not there. Where it cannot be had, ends this
    process as a test that skips, and says why."""
    made = subprocess.run(
        [pathlib.Path(__file__).resolve().parents[2] / "tools/dev/fetch_python"],
        capture_output=True, text=True, timeout=INSTALL_S, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        print("skipped: " + (made.stderr.strip() or "no reason given").splitlines()[-1])
        sys.exit(SKIPPED)
    return made.stdout.strip()

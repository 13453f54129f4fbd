"""Read what a stickyd on this node holds in shared memory, in place and without a copy:

    import stickyinvoc

    with stickyinvoc.attach("llama-8b") as state:
        weights = state.tensors()
        print(weights["model.norm.weight"].mean())

or make a state that others then read:

    with stickyinvoc.build("table") as b:
        b.add("squares", numpy.arange(1000) ** 2)

Needs Python 3.9 and libstickyinvoc.so; NumPy is needed once tensors are asked for. The library is
taken from $STICKYINVOC_LIBRARY, else from the installation that this package is part of, else from
where the system's loader looks.

Threads: a State may be used from many threads. Fork: in a child of os.fork() a State attaches anew
the first time it is used there; arrays made before the fork stay readable.
"""

import importlib

from ._build import Build, build
from ._errors import (
    Corrupt,
    DeviceLost,
    Error,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfMemory,
    PermissionDenied,
    Unavailable,
)
from ._library import version
from ._state import State, StateInfo, TensorInfo, Tensors, attach



def __getattr__(name):
    # They need packages that need not be there; each is imported when it is used.
    if name in ("torch", "transformers"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Build",
    "Corrupt",
    "DeviceLost",
    "Error",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "OutOfMemory",
    "PermissionDenied",
    "State",
    "StateInfo",
    "TensorInfo",
    "Tensors",
    "Unavailable",
    "attach",
    "build",
    "version",
]

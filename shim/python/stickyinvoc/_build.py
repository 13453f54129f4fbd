"""Builders: any Python program makes a state, in memory that others then attach to."""

import ctypes
import functools
import operator
import gc
import hashlib
import os
import weakref

from . import _library
from ._errors import InvalidArgument, path_bytes, utf8
from ._state import _NUMPY_TYPES, _bfloat16, _Memory

_ALIGNMENT = 256  # of every array and asset, in bytes
_ARENA_BYTES_MAX = 1 << 48
_ACCESS = {"owner": 0, "group": 1, "node": 2}
_PLACEMENT = {"join": 0, "replace": 1, "in_place": 2}
_BFLOAT16_NAMES = ("bfloat16", "bf16")
# What `stickyctl build` decides for the program that it starts.
_DECIDED_OUTSIDE = ("placement", "access", "pin", "idle", "deadline", "base", "source", "builder",
                    "recipe", "socket")  # fmt: skip


def build(name=None, *, access="owner", placement="join", idle=None, pin=False, base=None,
          recipe=None, wait=0.0, deadline=None, timeout=5.0, source=None, builder=None, cpu=None,
          socket=None):  # fmt: skip
    """Begins a state called `name`; the end of a `with` block over it publishes the state.

        with stickyinvoc.build("table", access="group", idle=3600) as b:
            squares = b.array("squares", (1000, 1000), "float32")
            squares[:] = ...
            b.add_asset("notes.json", b"{}")

    An exception in the block gives the build up: nobody ever sees any of it.

    name: None under `stickyctl build`, which has named it and decided all but wait and cpu.
    access: who may attach besides this user: "owner" (nobody), "group" or "node".
    placement: "join" (the name must be free, or hold a state of the same recipe), "replace" (the
    next epoch beside the old state) or "in_place" (the old one is drained first).
    idle: seconds without a lease after which it may go; None: never. pin: never evicted for want
    of memory. base: a state that it is derived from and keeps.
    recipe: str or bytes that say how it is made (a version, parameters). When a state of that name
    and recipe is there, `is_there` is true and there is nothing to build.
    wait: seconds that each array may wait for room. deadline: seconds from begin to commit; None:
    the daemon's own. timeout: seconds for connecting and for plain answers.
    source, builder: for people. cpu: the CPU that it is good for; None: any.
    socket: the daemon's socket, else $STICKYINVOC_SOCKET and so on.

    Raises a subclass of stickyinvoc.Error.
    """
    given = {"access": _ACCESS, "placement": _PLACEMENT}
    for word, value in (("access", access), ("placement", placement)):
        if value not in given[word]:
            known = ", ".join(repr(known) for known in given[word])
            raise InvalidArgument(f"begin a build: {word} {value!r} is none of {known}")
    if _is_adopted(name):
        asked = locals()
        name = None
        _refuse_decided({word: asked[word] for word in _DECIDED_OUTSIDE})
    options = _library.CBuildOptions()
    options.struct_bytes = ctypes.sizeof(options)
    options.connect_ms = max(1, _milliseconds("timeout", timeout, 2**32 - 1))
    options.deadline_ms = 0 if deadline is None else max(1, _milliseconds("deadline", deadline))
    options.placement = _PLACEMENT[placement]
    options.access = _ACCESS[access]
    options.pin = 1 if pin else 0
    options.idle_ms = 0 if idle is None else max(1, _milliseconds("idle", idle, 2**63))
    options.state = _option("name", name)
    options.socket_path = None if socket is None else path_bytes("begin a build: socket", socket)
    options.source = _option("source", source)
    options.base = _option("base", base)
    options.builder = _option("builder", builder)
    options.cpu = _option("cpu", cpu)
    options.recipe_digest = None if recipe is None else _recipe_digest(recipe)
    return Build(name or os.environ.get("STICKYINVOC_STATE", ""), options, wait)


def _is_adopted(name):
    """Whether `stickyctl build` began this build for this process."""
    if "STICKYINVOC_BUILD" not in os.environ:
        return name is None  # the library says what is missing
    return name is None or name == os.environ.get("STICKYINVOC_STATE")


def _refuse_decided(given):
    plain = build.__kwdefaults__
    said = [word for word, value in given.items() if value != plain[word]]
    if said and "STICKYINVOC_BUILD" in os.environ:
        raise InvalidArgument(
            "begin a build: " + ", ".join(said) + " cannot be chosen here, since `stickyctl build`"
            " has begun the build; give it to that command"
        )


def _milliseconds(what, seconds, most=2**32 - 1):
    if not 0 <= seconds <= most / 1000:
        raise InvalidArgument(f"begin a build: {what} of {seconds} seconds is out of range")
    return int(seconds * 1000)


def _option(what, text):
    return None if text is None else utf8(f"begin a build: {what}", text)


def _recipe_digest(recipe):
    is_text = isinstance(recipe, str)
    data = utf8("begin a build: recipe", recipe) if is_text else bytes(recipe)
    return hashlib.blake2b(data, digest_size=16).digest()


def _content(name, data):
    if not isinstance(data, str):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"add the asset {ascii(name)}: its text cannot be written as UTF-8 (at {error.start});"
            " give bytes"
        ) from None


def _nothing(handle):
    """Keeps `handle` while a finalizer that would call this waits."""


class _Handle:
    """One build. Its arenas' addresses are valid until nothing refers to it any more."""

    def __init__(self, options):
        self.pointer = ctypes.c_void_p()
        library = _library.library()
        self._end = library.sti_build_end  # kept: modules may be gone at exit
        error = _library.CError()
        _library.check(
            library.sti_build_begin(
                ctypes.byref(options), ctypes.byref(self.pointer), ctypes.byref(error)
            ),
            error,
        )

    def __del__(self):
        if self.pointer:
            self._end(self.pointer)

    def call(self, function, *arguments):
        error = _library.CError()
        function = getattr(_library.library(), function)
        _library.check(function(self.pointer, *arguments, ctypes.byref(error)), error)


class Build:
    """A build; make one with build() and use it as a context manager.

    Arrays are writable until the end of the block, zeros at first, and lie in the memory that
    others will attach to. At the end of the block the variables that still hold them become empty
    arrays; views of them (a slice, a row that a for loop left in its variable) must be gone, else
    the build is given up and the error names the array. A memoryview or another library's tensor
    on an array must not be used after the block: it would find zeros.

    One thread at a time; a build does not pass through fork.
    """

    def __init__(self, name, options, wait):
        self._name = name
        self._wait_ms = _milliseconds("wait", wait)
        self._handle = _Handle(options)
        self._given = {}  # name: (array that the caller has, weak reference to its memory)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.give_up()
            return
        try:
            self.commit()
        except BaseException:
            self.give_up()
            raise

    def __reduce__(self):
        raise TypeError("a Build cannot be pickled; it belongs to the process that began it")

    @property
    def is_there(self):
        """Whether a state of this name and recipe is there: then there is nothing to build."""
        return _library.library().sti_build_is_there(self._usable().pointer) == 1

    def array(self, name, shape, dtype="float32"):
        """A writable array of zeros that becomes the tensor `name`; at most 64 in a build.

        dtype: NumPy's, or "bfloat16", which is ml_dtypes.bfloat16 when that package is there, else
        the raw uint16. Raises OutOfMemory when there is no room for it within `wait`.
        """
        return self.arrays({name: (shape, dtype)})[name]

    def arrays(self, described):
        """Several arrays, side by side in one piece of memory: any number of them.

        described: a mapping of name to (shape, dtype). Gives a dict of name to array.
        """
        plan = {}
        end = 0
        for name, (shape, dtype) in described.items():
            code, numpy_dtype = _dtype(name, dtype)
            try:
                shape = tuple(
                    operator.index(n) for n in (shape if hasattr(shape, "__iter__") else (shape,))
                )
            except TypeError as error:
                raise InvalidArgument(f"add '{name}': shape {shape}: {error}") from None
            if len(shape) > _library.RANK_MAX or any(n < 0 for n in shape):
                raise InvalidArgument(f"add '{name}': shape {shape} is not allowed")
            plan[name] = (code, numpy_dtype, shape, end)
            size = functools.reduce(lambda a, b: a * b, shape, numpy_dtype.itemsize)
            end += (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        if end > _ARENA_BYTES_MAX:
            raise InvalidArgument(f"add {', '.join(plan)}: {end} bytes, at most {_ARENA_BYTES_MAX}")
        if not plan:
            return {}
        self._check_free(plan)
        arena, address = self._arena(end)
        return {name: self._give(name, arena, address, *rest) for name, rest in plan.items()}

    def add(self, name, array, dtype=None):
        """Copies `array` (whatever NumPy makes an array of) as the tensor `name`.

        dtype: the array's own when None. With "bfloat16" an array of uint16 is taken as raw bits.
        """
        self.add_all({name: array}, dtype)

    def add_all(self, arrays, dtype=None):
        """Copies a mapping of name to array, side by side in one piece of memory."""
        import numpy

        arrays = {name: numpy.asarray(array) for name, array in arrays.items()}
        for name, array in arrays.items():
            as_bits = dtype in _BFLOAT16_NAMES and _bfloat16() is None
            if as_bits and array.dtype != numpy.uint16:
                raise InvalidArgument(
                    f"add '{name}': making bfloat16 of {array.dtype} needs the package ml_dtypes;"
                    " without it, give the bits as uint16"
                )
        made = self.arrays({n: (a.shape, a.dtype if dtype is None else dtype)
                            for n, a in arrays.items()})  # fmt: skip
        for name, array in arrays.items():
            target = made[name]
            if dtype in _BFLOAT16_NAMES and array.dtype == numpy.uint16:
                target = target.view(numpy.uint16)
            target[...] = array

    def add_asset(self, name, data):
        """Copies `data` (bytes or anything with a buffer; str as UTF-8) as the asset `name`."""
        encoded = utf8("add an asset: the name", name)
        data = memoryview(_content(name, data)).cast("B")
        arena, address = self._arena(data.nbytes)
        block = (ctypes.c_ubyte * data.nbytes).from_address(address)
        memoryview(block).cast("B")[:] = data
        size = ctypes.c_uint64(data.nbytes)
        self._handle.call("sti_build_add_asset", encoded, arena, 0, size)

    def commit(self):
        """Publishes the state; the end of the block does so. Waits while the daemon digests it."""
        handle = self._usable()
        self._take_back()
        handle.call("sti_build_commit")
        self._handle = None

    def give_up(self):
        """Ends the build unpublished; an exception in the block does so. May be called again."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        for array, _ in self._given.values():
            _empty(array)
        self._given.clear()
        _library.library().sti_build_give_up(handle.pointer)

    def _usable(self):
        if self._handle is None:
            raise InvalidArgument(f"use the build of '{self._name}': it has ended")
        return self._handle

    def _check_free(self, names):
        for name in names:
            if name in self._given:
                raise InvalidArgument(f"add '{name}' to the build of '{self._name}': it is there")

    def _arena(self, size_bytes):
        handle = self._usable()
        if self.is_there:
            raise InvalidArgument(
                f"build '{self._name}': a state of this recipe is there already, and there is"
                " nothing to add; ask is_there first"
            )
        arena = ctypes.c_uint32()
        memory = ctypes.c_void_p()
        handle.call("sti_build_arena", max(size_bytes, _ALIGNMENT), self._wait_ms,
                    ctypes.byref(arena), ctypes.byref(memory))  # fmt: skip
        return arena.value, memory.value

    def _give(self, name, arena, address, code, numpy_dtype, shape, offset):
        tensor = _library.CBuildTensor()
        tensor.name = utf8("add an array: the name", name)
        tensor.dtype = code
        tensor.rank = len(shape)
        tensor.shape[: len(shape)] = shape
        tensor.offset = offset
        tensor.arena = arena
        self._handle.call("sti_build_add_tensor", ctypes.byref(tensor))
        import numpy

        memory = _Memory(self._handle, {
            "version": 3,
            "shape": shape,
            "typestr": _NUMPY_TYPES[_library.DTYPES[code]],
            "data": (address + offset, False),  # False: writable
        })  # fmt: skip
        # The caller gets a view, so that every further view is one of `whole` and keeps `memory`,
        # while the caller's own can be emptied in place.
        whole = numpy.asarray(memory)
        array = whole[...] if numpy_dtype == whole.dtype else whole.view(numpy_dtype)
        # Whoever holds its address (a memoryview, a tensor) holds the array: valid until it ends.
        weakref.finalize(array, _nothing, self._handle).atexit = False
        self._given[name] = (array, weakref.ref(memory))
        return array

    def _take_back(self):
        """Empties the arrays that the caller holds. Raises when there are views of one."""
        for array, _ in self._given.values():
            _empty(array)
        memories = {name: memory for name, (_, memory) in self._given.items()}
        self._given.clear()
        if any(memory() is not None for memory in memories.values()):
            gc.collect()
        held = [name for name, memory in memories.items() if memory() is not None]
        if held:
            names = ", ".join(f"'{name}'" for name in held)
            raise InvalidArgument(
                f"commit the build of '{self._name}': views of {names} are still in use (a slice,"
                " or what a for loop left in its variable): `del` them before the block ends"
            )


def _empty(array):
    """Makes `array` an empty one, in place: whoever has it cannot reach its old memory."""
    array.__setstate__((1, (0,), array.dtype, False, b""))


def _dtype(name, dtype):
    """(number of the sti_dtype, NumPy's dtype) for what a caller calls a dtype."""
    import numpy

    if isinstance(dtype, str) and dtype in _BFLOAT16_NAMES:
        return _library.DTYPES.index("bf16"), numpy.dtype(_bfloat16() or numpy.uint16)
    if isinstance(dtype, str) and dtype in _library.DTYPES:
        return _library.DTYPES.index(dtype), numpy.dtype(_NUMPY_TYPES[dtype])
    try:
        wanted = numpy.dtype(dtype)
    except TypeError as error:
        raise InvalidArgument(f"add '{name}': {error}") from None
    if wanted.name == "bfloat16":
        return _library.DTYPES.index("bf16"), wanted
    little = wanted.newbyteorder("<")
    for code, word in enumerate(_library.DTYPES):
        if word != "bf16" and numpy.dtype(_NUMPY_TYPES[word]) == little:
            return code, little
    raise InvalidArgument(
        f"add '{name}': dtype {wanted} is none of bool, int8 to int64, uint8 to uint64, float16,"
        " bfloat16, float32 and float64"
    )

"""Attached states: who keeps what alive, what happens after fork, and tensors as NumPy arrays."""

import collections.abc
import ctypes
import functools
import os
import threading
import time
from typing import NamedTuple, Tuple

from . import _library
from ._errors import InvalidArgument, Unavailable, path_bytes, utf8

# While waiting for a state that is being built, so that Ctrl-C is noticed.
_WAIT_SLICE_S = 1.0

_NUMPY_TYPES = {
    "bool": "|b1",
    "u8": "|u1",
    "i8": "|i1",
    "u16": "<u2",
    "i16": "<i2",
    "u32": "<u4",
    "i32": "<i4",
    "u64": "<u8",
    "i64": "<i8",
    "f16": "<f2",
    "bf16": "<u2",
    "f32": "<f4",
    "f64": "<f8",
}


class StateInfo(NamedTuple):
    """What is attached. Digests are 32 hexadecimal digits."""

    name: str
    device: str
    epoch: int
    daemon_nonce: int
    arena_bytes: int
    tensor_count: int
    asset_count: int
    lease_id: int
    adopted: bool
    content_digest: str
    template_digest: str


class TensorInfo(NamedTuple):
    """What a tensor is. dtype is the state's own word for it: "bf16", "f32", ..."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    size_bytes: int


class _Handle:
    """One attachment. Detaches when nothing refers to it any more: neither State nor array."""

    def __init__(self, pointer):
        self.pointer = pointer
        self.pid = os.getpid()
        self._detach = _library.library().sti_detach  # kept: modules may be gone at exit

    def __del__(self):
        self._detach(self.pointer)


class _Memory:
    """What NumPy takes an array from; the array keeps it, and it keeps the handle."""

    def __init__(self, handle, interface):
        self.handle = handle
        self.__array_interface__ = interface


# Guards attaching anew after a fork. A thread that is not copied into the child may have held it,
# so the child gets a fresh one.
_fork_lock = threading.Lock()


def _renew_lock():
    global _fork_lock
    _fork_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _attach_once(name, wait_s, timeout_s, digest, socket):
    options = _library.CAttachOptions()
    options.struct_bytes = ctypes.sizeof(options)
    options.wait_ms = max(0, min(int(wait_s * 1000), 2**32 - 1))
    options.connect_ms = max(1, min(int(timeout_s * 1000), 2**32 - 1))
    options.socket_path = None if socket is None else path_bytes("attach: socket", socket)
    options.digest = digest  # 16 bytes; ctypes keeps them alive with the options
    pointer = ctypes.c_void_p()
    error = _library.CError()
    _library.check(
        _library.library().sti_attach(
            None if name is None else utf8("attach: the state's name", name),
            ctypes.byref(options),
            ctypes.byref(pointer),
            ctypes.byref(error),
        ),
        error,
    )
    return _Handle(pointer)


def _attach_handle(name, wait_s, timeout_s, digest, socket):
    give_up_at = time.monotonic() + wait_s
    while True:
        began_at = time.monotonic()
        left_s = max(0.0, give_up_at - began_at)
        slice_s = min(left_s, _WAIT_SLICE_S)
        try:
            return _attach_once(name, slice_s, timeout_s, digest, socket)
        except Unavailable:
            # Refused before the slice was over: not for want of waiting.
            waited_s = time.monotonic() - began_at
            if left_s <= _WAIT_SLICE_S or waited_s < slice_s * 0.9:
                raise


def _digest_bytes(digest):
    if digest is None:
        return None
    try:
        data = bytes.fromhex(digest) if isinstance(digest, str) else bytes(digest)
    except ValueError:
        data = b""
    if len(data) != 16:
        raise InvalidArgument("attach: digest must be 16 bytes or 32 hexadecimal digits")
    return data


def attach(name=None, *, wait=0.0, timeout=5.0, digest=None, socket=None):
    """Attaches the state called `name` (None: $STICKYINVOC_STATE) and gives a State.

    wait: seconds to wait while the state is being built. timeout: seconds for connecting and for
    the reply. digest: 16 bytes or 32 hexadecimal digits; only a state with this content will do.
    socket: the daemon's socket, else $STICKYINVOC_SOCKET and so on. Under `stickyctl run` the lease
    that came with the process is used.

    Raises a subclass of stickyinvoc.Error.
    """
    return State(name, wait, timeout, _digest_bytes(digest), socket)


class State:
    """An attached state; make one with attach(). A context manager that detaches at its end.

    detach() ends this object's use of the state at once. The memory and the lease go when the last
    array or memoryview of it is gone too, so that no array ever points at nothing.
    """

    def __init__(self, name, wait, timeout, digest, socket):
        self._arguments = (timeout, socket)
        self._handle = _attach_handle(name, wait, timeout, digest, socket)
        self._info = self._read_info()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.detach()

    def __reduce__(self):
        raise TypeError("a State cannot be pickled; attach by name in the other process")

    def __repr__(self):
        word = "detached" if self._handle is None else "attached"
        return f"<stickyinvoc.State '{self._info.name}' {word}>"

    def detach(self):
        """Lets go; may be called again. Arrays that were taken stay valid."""
        self._handle = None

    def _usable(self):
        handle = self._handle
        if handle is None:
            raise InvalidArgument(f"use '{self._info.name}': it is detached")
        if handle.pid == os.getpid():
            return handle
        with _fork_lock:
            if self._handle.pid != os.getpid():
                # Only the very same bytes will do: the child goes on where the parent was.
                timeout, socket = self._arguments
                digest = bytes.fromhex(self._info.content_digest)
                self._handle = _attach_handle(self._info.name, 0.0, timeout, digest, socket)
                self._info = self._read_info()
            return self._handle

    def _read_c_info(self):
        info = _library.CStateInfo()
        info.struct_bytes = ctypes.sizeof(info)
        error = _library.CError()
        _library.check(
            _library.library().sti_state_info_get(
                self._handle.pointer, ctypes.byref(info), ctypes.byref(error)
            ),
            error,
        )
        return info

    def _read_info(self):
        info = self._read_c_info()
        return StateInfo(
            info.name.decode(),
            info.device.decode(),
            info.epoch,
            info.daemon_nonce,
            info.arena_bytes,
            info.tensor_count,
            info.asset_count,
            info.lease_id,
            info.adopted == 1,
            bytes(info.content_digest).hex(),
            bytes(info.template_digest).hex(),
        )

    @property
    def connected(self):
        """Whether the daemon still knows of this lease. When it does not, since it was restarted or
        has died, every array stays valid and the same; attach anew for a lease."""
        self._usable()
        return self._read_c_info().connected == 1

    @property
    def info(self):
        """A StateInfo."""
        self._usable()
        return self._info

    def tensor_info(self, name):
        """A TensorInfo; does not need NumPy. Raises NotFound."""
        return _describe(_find(self._usable(), name))

    def tensor_names(self):
        """Names of all tensors, in order; does not need NumPy."""
        handle = self._usable()
        return [_at(handle, index).name.decode() for index in range(self._info.tensor_count)]

    def tensor(self, name):
        """A read-only NumPy array on the shared bytes; nothing is copied. Raises NotFound.

        bf16 comes as ml_dtypes.bfloat16 when that package is there, else as the raw uint16.
        """
        handle = self._usable()
        return _array(handle, _find(handle, name))

    def tensors(self):
        """A read-only mapping from name to array, in order of name; arrays are made when asked."""
        self._usable()
        return Tensors(self)

    def torch_tensors(self):
        """As tensors(), of torch.Tensor on the shared bytes; see stickyinvoc.torch: no writing."""
        self._usable()
        from .torch import TorchTensors

        return TorchTensors(self)

    def _place(self, name):
        """(TensorInfo, address, what keeps the memory)."""
        handle = self._usable()
        tensor = _find(handle, name)
        return _describe(tensor), tensor.data, handle

    def asset_names(self):
        """Names of all assets, in order."""
        handle = self._usable()
        name_at = _library.library().sti_asset_name_at
        return [name_at(handle.pointer, i).decode() for i in range(self._info.asset_count)]

    def asset(self, name):
        """The bytes of an asset (config.json, ...) as a read-only memoryview. Raises NotFound."""
        handle = self._usable()
        data = ctypes.c_void_p()
        size = ctypes.c_uint64()
        error = _library.CError()
        _library.check(
            _library.library().sti_asset_find(
                handle.pointer,
                _name_bytes(name),
                ctypes.byref(data),
                ctypes.byref(size),
                ctypes.byref(error),
            ),
            error,
        )
        if size.value == 0:
            return memoryview(b"")
        block = (ctypes.c_ubyte * size.value).from_address(data.value)
        block.handle = handle  # lives as long as any view of the block
        return memoryview(block).cast("B").toreadonly()


class Tensors(collections.abc.Mapping):
    """The tensors of a State by name."""

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        return self._state.tensor(name)

    def __iter__(self):
        return iter(self._state.tensor_names())

    def __len__(self):
        return self._state.info.tensor_count

    def __contains__(self, name):
        try:
            self._state.tensor_info(name)
        except KeyError:
            return False
        return True


def _name_bytes(name):
    return utf8("find by name", name)


def _find(handle, name):
    tensor = _library.CTensor()
    error = _library.CError()
    _library.check(
        _library.library().sti_tensor_find(
            handle.pointer, _name_bytes(name), ctypes.byref(tensor), ctypes.byref(error)
        ),
        error,
    )
    return tensor


def _at(handle, index):
    tensor = _library.CTensor()
    error = _library.CError()
    _library.check(
        _library.library().sti_tensor_at(
            handle.pointer, index, ctypes.byref(tensor), ctypes.byref(error)
        ),
        error,
    )
    return tensor


def _describe(tensor):
    return TensorInfo(
        tensor.name.decode(),
        _library.DTYPES[tensor.dtype],
        tuple(tensor.shape[: tensor.rank]),
        tensor.size_bytes,
    )


def _array(handle, tensor):
    import numpy

    info = _describe(tensor)
    interface = {
        "version": 3,
        "shape": info.shape,
        "typestr": _NUMPY_TYPES[info.dtype],
        "data": (tensor.data, True),  # True: read-only
    }
    array = numpy.asarray(_Memory(handle, interface))
    bfloat16 = _bfloat16() if info.dtype == "bf16" else None
    return array if bfloat16 is None else array.view(bfloat16)


@functools.lru_cache(maxsize=1)
def _bfloat16():
    """NumPy's type for bf16, or None: it comes with a package that need not be there."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes.bfloat16

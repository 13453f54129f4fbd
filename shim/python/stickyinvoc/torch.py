"""Tensors of a state as PyTorch's, on the shared bytes: nothing is copied.

The memory is read-only, for good, and PyTorch has no read-only tensors: an operation that writes to
one in place (`t.add_(1)`, `t[0] = 1`, an optimizer's step, `out=t`) ends this process with SIGSEGV.
`t.clone()` is the process' own and may be written to. Nobody else sees anything of either.
"""

import collections.abc
import ctypes

from ._errors import InvalidArgument

_TYPES = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}


def tensor(state, name):
    """The tensor `name` of a State as a torch.Tensor on the shared bytes, which it keeps.

    Raises NotFound, and InvalidArgument for a dtype that the installed PyTorch does not have (it
    has unsigned ones of more than a byte since 2.3).
    """
    import torch

    info, address, handle = state._place(name)
    dtype = getattr(torch, _TYPES[info.dtype], None)
    if dtype is None:
        raise InvalidArgument(
            f"take '{name}' as a torch tensor: PyTorch {torch.__version__} has no {info.dtype};"
            " take it with state.tensor()"
        )
    if info.size_bytes == 0:
        return torch.empty(info.shape, dtype=dtype)
    block = (ctypes.c_ubyte * info.size_bytes).from_address(address)
    block.handle = handle  # lives as long as any tensor on the block
    return torch.frombuffer(block, dtype=dtype).reshape(info.shape)


class TorchTensors(collections.abc.Mapping):
    """The tensors of a State by name; see tensor()."""

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        return tensor(self._state, name)

    def __iter__(self):
        return iter(self._state.tensor_names())

    def __len__(self):
        return self._state.info.tensor_count

    def __contains__(self, name):
        return name in self._state.tensors()

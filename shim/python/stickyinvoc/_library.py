"""The C ABI (stickyinvoc.h, build.h) as ctypes sees it. Opened at the first use, not at import."""

import ctypes
import os
import pathlib

from ._errors import NotFound, from_code

RANK_MAX = 8
_SONAME = "libstickyinvoc.so.0"

DTYPES = (
    "bool",
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "f16",
    "bf16",
    "f32",
    "f64",
)


class CError(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("os_code", ctypes.c_int32),
        ("message", ctypes.c_char * 512),
    ]


class CAttachOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("wait_ms", ctypes.c_uint32),
        ("connect_ms", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("socket_path", ctypes.c_char_p),
        ("digest", ctypes.c_char_p),
    ]


class CTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("size_bytes", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * RANK_MAX),
    ]


class CStateInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("tensor_count", ctypes.c_uint32),
        ("asset_count", ctypes.c_uint32),
        ("adopted", ctypes.c_uint32),
        ("epoch", ctypes.c_uint64),
        ("daemon_nonce", ctypes.c_uint64),
        ("arena_bytes", ctypes.c_uint64),
        ("lease_id", ctypes.c_uint64),
        ("content_digest", ctypes.c_uint8 * 16),
        ("template_digest", ctypes.c_uint8 * 16),
        ("name", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("connected", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class CBuildOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("connect_ms", ctypes.c_uint32),
        ("deadline_ms", ctypes.c_uint32),
        ("placement", ctypes.c_uint32),
        ("access", ctypes.c_uint32),
        ("pin", ctypes.c_uint32),
        ("idle_ms", ctypes.c_uint64),
        ("state", ctypes.c_char_p),
        ("socket_path", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("base", ctypes.c_char_p),
        ("builder", ctypes.c_char_p),
        ("cpu", ctypes.c_char_p),
        ("recipe_digest", ctypes.c_char_p),  # 16 bytes, not text
    ]


class CBuildTensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * RANK_MAX),
        ("offset", ctypes.c_uint64),
        ("arena", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


_STATE = ctypes.c_void_p
_BUILD = ctypes.c_void_p
_ERROR = ctypes.POINTER(CError)
_SIGNATURES = {
    "sti_version": (ctypes.c_char_p, []),
    "sti_attach": (
        ctypes.c_int,
        [ctypes.c_char_p, ctypes.POINTER(CAttachOptions), ctypes.POINTER(_STATE), _ERROR],
    ),
    "sti_detach": (None, [_STATE]),
    "sti_state_info_get": (ctypes.c_int, [_STATE, ctypes.POINTER(CStateInfo), _ERROR]),
    "sti_tensor_find": (
        ctypes.c_int,
        [_STATE, ctypes.c_char_p, ctypes.POINTER(CTensor), _ERROR],
    ),
    "sti_tensor_at": (ctypes.c_int, [_STATE, ctypes.c_uint32, ctypes.POINTER(CTensor), _ERROR]),
    "sti_asset_find": (
        ctypes.c_int,
        [
            _STATE,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_uint64),
            _ERROR,
        ],
    ),
    "sti_asset_name_at": (ctypes.c_char_p, [_STATE, ctypes.c_uint32]),
    "sti_build_begin": (
        ctypes.c_int,
        [ctypes.POINTER(CBuildOptions), ctypes.POINTER(_BUILD), _ERROR],
    ),
    "sti_build_is_there": (ctypes.c_int, [_BUILD]),
    "sti_build_arena": (
        ctypes.c_int,
        [
            _BUILD,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.POINTER(ctypes.c_uint32),
            ctypes.POINTER(ctypes.c_void_p),
            _ERROR,
        ],
    ),
    "sti_build_add_tensor": (ctypes.c_int, [_BUILD, ctypes.POINTER(CBuildTensor), _ERROR]),
    "sti_build_add_asset": (
        ctypes.c_int,
        [_BUILD, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, _ERROR],
    ),
    "sti_build_commit": (ctypes.c_int, [_BUILD, _ERROR]),
    "sti_build_give_up": (None, [_BUILD]),
    "sti_build_end": (None, [_BUILD]),
}


def _candidates():
    chosen = os.environ.get("STICKYINVOC_LIBRARY")
    if chosen:
        return [chosen]
    found = []
    try:
        from . import _where

        beside = pathlib.Path(__file__).resolve().parent / _where.LIBRARY
        if beside.exists():
            found.append(str(beside.resolve()))
    except ImportError:
        pass  # not installed: run from the source tree
    return found + [_SONAME]


def _open():
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise NotFound(
        "open libstickyinvoc: " + "; ".join(reasons) + "; set STICKYINVOC_LIBRARY to its path"
    )


_library = None


def library():
    """The opened library. Two threads that come first at once both open it, which is harmless."""
    global _library
    if _library is None:
        _library = _open()
    return _library


def version():
    """The version of the library that is used, such as "0.1.0"."""
    return library().sti_version().decode()


def check(result, error):
    """Raises what a function of the library has returned."""
    if result != 0:
        raise from_code(-result, error.message.decode(errors="replace"), error.os_code)

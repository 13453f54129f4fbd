"""One exception a code of the C ABI, so that a caller can catch what it can do something about."""

import os


class Error(Exception):
    """What went wrong, and what to do next. `code` is an sti_code, `os_code` an errno or 0."""

    code = 0

    def __init__(self, message, os_code=0):
        super().__init__(message)
        self.os_code = os_code

    def __str__(self):
        return self.args[0]


class InvalidArgument(Error, ValueError):
    """The caller's mistake; the same call fails again."""

    code = 1


class NotFound(Error, KeyError):
    """No such state, tensor or asset; or no libstickyinvoc."""

    code = 2


class Unavailable(Error):
    """Try again: no daemon, still loading, draining, or the deadline has passed."""

    code = 3


class OutOfMemory(Error):
    """No address space, no descriptors, or a limit of the daemon; nothing has changed."""

    code = 4


class PermissionDenied(Error):
    """The message names the rule."""

    code = 5


class Corrupt(Error):
    """What came from the daemon does not check, or it has another digest."""

    code = 6


class DeviceLost(Error):
    """The device cannot be used until this process starts again."""

    code = 7


class Internal(Error):
    """A bug of StickyInvoc."""

    code = 8


_KINDS = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        Unavailable,
        OutOfMemory,
        PermissionDenied,
        Corrupt,
        DeviceLost,
        Internal,
    )
}


def from_code(code, message, os_code):
    """The exception for a positive sti_code."""
    return _KINDS.get(code, Internal)(message, os_code)


def utf8(doing, text):
    """`text` as the library takes it. InvalidArgument when that cannot be: it cannot be printed
    either, so the message has it escaped."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{doing}: {ascii(text)} cannot be written as UTF-8 (half a surrogate pair is in it, as"
            " os.listdir gives for bytes that are no text)"
        ) from None
    if b"\0" in encoded:
        raise InvalidArgument(f"{doing}: {ascii(text)} has a NUL in it")
    return encoded


def path_bytes(doing, path):
    """A path as the library takes it, whatever bytes it was made of."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"{doing}: {ascii(path)} is no path that can be") from None

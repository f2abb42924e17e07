"""The functions of ream.h, and their errors.

A process that was started by `ream run`, or linked with -lream, has them already. In any other one, libream_inside.so is
loaded when the first of them is called, not when this package is imported; loading it changes nothing by itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Dict, Optional, Tuple, Type

from . import _places


class Error(OSError):
    """What Ream refused or could not do; `errno` says which error it was, as in ream.h."""


class OutOfMemory(Error, MemoryError):
    """There is no memory for a block, or more would be kept in RAM than may be."""


class CStatus(ctypes.Structure):
    """struct ream_status."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("support", ctypes.c_uint32),
        ("enabled", ctypes.c_uint32),
        ("session", ctypes.c_uint32),
        ("paging", ctypes.c_uint32),
        ("min", ctypes.c_uint64),
        ("max", ctypes.c_uint64),
        ("large_page", ctypes.c_uint64),
        ("budget", ctypes.c_uint64),
        ("managed", ctypes.c_uint64),
        ("resident", ctypes.c_uint64),
        ("engine", ctypes.c_char * 16),
    ]


class CRegion(ctypes.Structure):
    """struct ream_region."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("id", ctypes.c_uint64),
        ("address", ctypes.c_size_t),
        ("length", ctypes.c_uint64),
        ("resident", ctypes.c_uint64),
        ("large", ctypes.c_uint64),
        ("staged", ctypes.c_uint64),
        ("stored", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 32),
    ]


class CHints(ctypes.Structure):
    """struct ream_hints."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("page_size", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("store", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
    ]


class CAllocator(ctypes.Structure):
    """struct ream_allocator; its functions are addresses."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("min", ctypes.c_size_t),
        ("hints", ctypes.POINTER(CHints)),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


_INT, _LONG, _SIZE, _ADDRESS, _TEXT = ctypes.c_int, ctypes.c_long, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p

# Name: result, arguments.
_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "ream_status": (_INT, _ADDRESS),
    "ream_regions": (_LONG, _ADDRESS, _SIZE, _SIZE),
    "ream_enable": (_INT, _INT, _SIZE, _SIZE),
    "ream_alloc": (_ADDRESS, _SIZE, _ADDRESS),
    "ream_free": (_INT, _ADDRESS),
    "ream_allocator_malloc": (_ADDRESS, _ADDRESS, _SIZE),
    "ream_allocator_calloc": (_ADDRESS, _ADDRESS, _SIZE, _SIZE),
    "ream_allocator_realloc": (_ADDRESS, _ADDRESS, _ADDRESS, _SIZE),
    "ream_allocator_free": (None, _ADDRESS, _ADDRESS, _SIZE),
    "ream_advise": (_INT, _ADDRESS, _SIZE, _INT),
    "ream_pin": (_INT, _ADDRESS, _SIZE),
    "ream_unpin": (_INT, _ADDRESS, _SIZE),
    "ream_phase": (_INT, _TEXT),
    "ream_budget": (_INT, ctypes.c_uint64),
    "ream_start": (_INT, ctypes.c_uint64, _TEXT),
    "ream_error": (_TEXT, _INT),
}


class Library:
    """A library that has the functions."""

    def __init__(self, loaded: ctypes.CDLL, path: Optional[str]) -> None:
        self.path = path
        self._loaded = loaded
        self._functions: Dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """One of them; an older library may lack it."""
        found = self._functions.get(name)
        if found is None:
            try:
                found = self._loaded[name]
            except AttributeError:
                text = "{}: {} does not have it; install a newer Ream".format(name, self.path or "the library")
                raise Error(errno.ENOSYS, text) from None
            found.restype, found.argtypes = _FUNCTIONS[name][0], _FUNCTIONS[name][1:]
            self._functions[name] = found
        return found


_library: Optional[Library] = None


def library() -> Library:
    """The library of this process, loaded at the first call."""
    # Two threads that come here at once load the same one.
    global _library
    if _library is None:
        _library = _already_there() or _load()
    return _library


def _already_there() -> Optional[Library]:
    process = ctypes.CDLL(None, use_errno=True)
    try:
        process["ream_status"]
    except AttributeError:
        return None
    return Library(process, None)


def _load() -> Library:
    path = _places.library()
    if path is None:
        raise Error(errno.ENOENT, _places.missing(_places.INSIDE))
    try:
        loaded = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL | os.RTLD_NOW, use_errno=True)
    except OSError as error:
        raise Error(errno.ELIBACC, str(error)) from None
    return Library(loaded, path)


def available() -> bool:
    """Whether Ream can be used in this process: it is there already, or its library was found and loads."""
    try:
        library()
    except Error:
        return False
    return True


def explain(code: int) -> str:
    """What an errno means here."""
    text = library().function("ream_error")(-code)
    return str(text.decode()) if text else os.strerror(code)


def failure(code: int, what: str, hint: str = "", kind: Type[Error] = Error) -> Error:
    """An error with its text."""
    text = "{}: {}".format(what, explain(code))
    return kind(code, text + "; " + hint if hint else text)


def call(name: str, *arguments: object) -> int:
    """Calls a function whose negative results are errors."""
    result = int(library().function(name)(*arguments))
    if result < 0:
        raise failure(-result, name)
    return result

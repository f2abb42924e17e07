"""What is going to happen with memory that is there: advice, and pins."""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple, Optional, Tuple

from ._library import call
from ._state import Region

#: What `advise` understands; see there.
ADVICE = {"normal": 0, "willneed": 1, "cold": 2, "drop": 3, "sequential": 4, "random": 5, "keep": 6}
_DROP = ADVICE["drop"]

_DIGITS = re.compile("[0-9]+")


class _PyBuffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


class _Range(NamedTuple):
    address: int
    size: int
    #: Why its content must stay; None where it need not.
    kept: Optional[str]


def _item(typestr: str) -> Tuple[str, int]:
    """The kind and the bytes of an element; units may stand behind them, as in <M8[ns], and references have none."""
    digits = _DIGITS.match(typestr, 2)
    size = int(digits.group()) if digits else ctypes.sizeof(ctypes.c_void_p)
    return typestr[1], size * 4 if typestr[1] == "U" else size


def _of_interface(owner: object, interface: Any) -> _Range:
    address, readonly = interface["data"]
    shape: Tuple[int, ...] = interface["shape"]
    kind, item = _item(interface["typestr"])
    count = item
    for length in shape:
        count *= length
    if count == 0:
        return _Range(address, 0, None)
    low, high = address, address + item
    strides = interface.get("strides")
    if strides is None:
        high = address + count
    else:
        for length, stride in zip(shape, strides):
            low += min(0, (length - 1) * stride)
            high += max(0, (length - 1) * stride)
    kept = None
    if readonly:
        kept = "it is read-only"
    elif getattr(getattr(owner, "dtype", None), "hasobject", False) or kind == "O":
        kept = "it holds Python objects"
    elif high - low != count:
        kept = "there is other data between its elements"
    return _Range(low, high - low, kept)


def _of_tensor(tensor: Any) -> _Range:
    if tensor.device.type != "cpu":
        raise TypeError("the tensor is not in the memory of this process but on {}".format(tensor.device))
    if not tensor.is_contiguous():
        raise TypeError("the tensor is not contiguous")
    return _Range(tensor.data_ptr(), tensor.numel() * tensor.element_size(), None)


def _of_buffer(owner: object) -> _Range:
    buffer = _PyBuffer()
    python = ctypes.pythonapi
    # Flags 0 (PyBUF_SIMPLE): contiguous bytes, read-only or not.
    python.PyObject_GetBuffer(ctypes.py_object(owner), ctypes.byref(buffer), 0)
    try:
        return _Range(buffer.buf or 0, buffer.len, "it is read-only" if buffer.readonly else None)
    finally:
        python.PyBuffer_Release(ctypes.byref(buffer))


def _range(owner: Any) -> _Range:
    if isinstance(owner, Region):
        return _Range(owner.address, owner.length, None)
    interface = getattr(owner, "__array_interface__", None)
    if isinstance(interface, dict) and isinstance(interface.get("data"), tuple):
        return _of_interface(owner, interface)
    if hasattr(owner, "data_ptr") and hasattr(owner, "element_size"):
        return _of_tensor(owner)
    try:
        return _of_buffer(owner)
    except (TypeError, BufferError):
        text = "{}: neither an array nor contiguous memory (of pandas' objects, give .values)"
        raise TypeError(text.format(type(owner).__name__)) from None


def advise(array: object, advice: str) -> None:
    """Says what is going to happen with the memory of an array (or tensor, bytes-like object, `Region`).

    "willneed": begin to bring it back from the store. "cold": move it out of RAM first of all. "drop": its content is not
    needed, whole pages of it read as zeros from now on and take no room. "sequential", "random", "keep" (used again and
    again): until there is other advice. "normal": as the history of touches suggests.

    "drop" is for arrays of this package and for managed large ones; arrays that are read-only, hold Python objects, or have
    other data between their elements are refused.
    """
    if not isinstance(advice, str):
        raise TypeError("advice: {} of {}".format(type(advice).__name__, ", ".join(ADVICE)))
    number = ADVICE.get(advice)
    if number is None:
        raise ValueError("advice: {!r} is none of {}".format(advice, ", ".join(ADVICE)))
    found = _range(array)
    if number == _DROP and found.kept is not None:
        raise ValueError("the array's content cannot be dropped: {}".format(found.kept))
    if found.size:
        call("ream_advise", found.address, found.size, number)


def pin(array: object) -> None:
    """Brings the pages that hold an array into RAM, and keeps them there until `unpin` or until the memory is freed.

    In a session half of the budget can be pinned; without one this is mlock(2), with its limits.
    """
    found = _range(array)
    if found.size:
        call("ream_pin", found.address, found.size)


def unpin(array: object) -> None:
    """Ends `pin`. How often that was called does not count."""
    found = _range(array)
    if found.size:
        call("ream_unpin", found.address, found.size)

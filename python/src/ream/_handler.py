"""numpy's arrays in blocks of Ream's own: a data-allocation handler (NEP 49).

It is needed for explicit wishes only. Where Ream has taken over the process's malloc (under `ream run`, in `large_pages` and
in `budget`), numpy's own handler, which calls malloc, obeys the switch already, at no cost and for all threads. A handler
can do what malloc cannot: give the arrays of one thread or task a page size, a name, a place that is never paged.

numpy takes handlers by its C interface alone, whose table it exports as the capsule _ARRAY_API; the places in it that are
used here have been the same since numpy 1.22, and numpy keeps them. The handler's functions are the library's
(ream_allocator_malloc and so on), with the wishes and numpy's own handler as their context. They must not be Python's: an
array is freed while an exception is on its way, too, and Python code that is called then fails, or hides the exception.
What is below `min` goes on to numpy's own handler, which has a cache for small arrays.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
from typing import Any, Dict, List, Optional, Tuple

from ._library import CAllocator, Error, library
from ._sizes import Size, size_in_bytes
from ._wishes import Wishes, wishes

#: Places in numpy's table of functions.
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306
_CAPSULE_NAME = b"mem_handler"
_FUNCTIONS = ("malloc", "calloc", "realloc", "free")


class _Handler(ctypes.Structure):
    """PyDataMem_Handler, version 1."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the interpreter. (Not by ctypes.pythonapi, whose functions are shared by all that use them.)"""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer_of = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new_capsule = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_keep_forever = _python("Py_IncRef", None, ctypes.py_object)


def _table() -> Any:
    import numpy

    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise Error(errno.ENOTSUP, "ream.arrays needs numpy 1.22 or later, this is {}".format(numpy.__version__))
    module = importlib.import_module(("numpy.core" if version < (2, 0) else "numpy._core") + "._multiarray_umath")
    return ctypes.cast(_pointer_of(module._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


class _Numpy:
    """What is used of numpy."""

    def __init__(self) -> None:
        table = _table()
        # With the interpreter's lock held, which sets a variable of the context.
        self.set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
        usual = ctypes.cast(table[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0]
        self.usual = ctypes.cast(_pointer_of(usual, _CAPSULE_NAME), ctypes.POINTER(_Handler))[0]


_numpy: Optional[_Numpy] = None
_capsules: Dict[Tuple[Wishes, int], Any] = {}


def _made(numpy: _Numpy, wanted: Wishes, least: int) -> Any:
    """A handler, in a capsule. It stays for as long as the process: arrays that were made with it need it."""
    hints = wanted.hints()
    allocator = CAllocator(ctypes.sizeof(CAllocator), least, ctypes.pointer(hints), numpy.usual.context)
    handler = _Handler(b"ream", 1, ctypes.addressof(allocator))
    for name in _FUNCTIONS:
        setattr(allocator, name, getattr(numpy.usual, name))
        setattr(handler, name, ctypes.cast(library().function("ream_allocator_" + name), ctypes.c_void_p).value)
    name_of_kind = ctypes.create_string_buffer(_CAPSULE_NAME)
    capsule = _new_capsule(ctypes.addressof(handler), name_of_kind, None)
    # Also at the interpreter's end, when modules are empty before the last array goes.
    for kept in (capsule, handler, name_of_kind, allocator, hints, wanted):
        _keep_forever(kept)
    return capsule


def _capsule(wanted: Wishes, least: int) -> Any:
    global _numpy
    if _numpy is None:
        _numpy = _Numpy()
    found = _capsules.get((wanted, least))
    if found is None:
        found = _capsules[wanted, least] = _made(_numpy, wanted, least)
    return found


class arrays:
    """While it is entered, arrays of `min` bytes and more that numpy makes in this thread or task are blocks of Ream's own.

        with ream.arrays(pages="huge", pageable=False, name="tables"):
            table = np.zeros((20000, 20000))

    The other arguments are those of `ream.empty`; arrays keep what they have when it is left. A block that cannot be had is a
    MemoryError. Needs numpy 1.22 or later.
    """

    def __init__(
        self,
        *,
        pages: Optional[Size] = None,
        pageable: bool = True,
        pinned: bool = False,
        name: Optional[str] = None,
        min: Size = 2 << 20,
    ) -> None:
        self._wanted = wishes(pages, pageable, pinned, name)
        self._least = max(size_in_bytes(min, "min"), 4096)
        self._before: List[Any] = []

    def __enter__(self) -> "arrays":
        capsule = _capsule(self._wanted, self._least)
        assert _numpy is not None
        self._before.append(_numpy.set_handler(capsule))
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._before or _numpy is None:
            raise RuntimeError("arrays is left without having been entered")
        _numpy.set_handler(self._before.pop())

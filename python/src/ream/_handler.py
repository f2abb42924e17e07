"""numpy's arrays in blocks of Ream's own: a data-allocation handler (NEP 49).

It is needed for explicit wishes only. Where Ream has taken over the process's malloc (under `ream run`, in `large_pages` and
in `budget`), numpy's own handler, which calls malloc, obeys the switch already, at no cost and for all threads. A handler
can do what malloc cannot: give the arrays of one thread or task a page size, a name, a place that is never paged.

numpy takes handlers by its C interface alone, whose table it exports as the capsule _ARRAY_API; the places in it that are
used here have been the same since numpy 1.22, and numpy keeps them. The handler's functions are Python's, called back by
ctypes, which takes the interpreter's lock where numpy has let it go. That costs about two microseconds for each array, which
is nothing beside the system calls of a block of 2 MiB, and is why arrays below `min` go on to numpy's own
handler, which has a cache for small ones. Functions in C would need to be told the wishes with every call; the
library's malloc takes none. When an interrupt from the keyboard arrives just in the callback, Python reports it there, and
the array's allocation fails with MemoryError.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple, Type

from ._library import Error, library
from ._sizes import Size, size_in_bytes
from ._wishes import Wishes, allocate, wishes

_ADDRESS, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = (_ADDRESS, _ADDRESS, _SIZE)
_CALLOC = (_ADDRESS, _ADDRESS, _SIZE, _SIZE)
_REALLOC = (_ADDRESS, _ADDRESS, _ADDRESS, _SIZE)
_FREE = (None, _ADDRESS, _ADDRESS, _SIZE)

#: Places in numpy's table of functions.
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306
_CAPSULE_NAME = b"mem_handler"


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


def _table() -> Any:
    import numpy

    version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
    if version < (1, 22):
        raise Error(errno.ENOTSUP, "ream.arrays needs numpy 1.22 or later, this is {}".format(numpy.__version__))
    module = importlib.import_module(("numpy.core" if version < (2, 0) else "numpy._core") + "._multiarray_umath")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.cast(pointer(module._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


class _Numpy:
    """What is used of numpy."""

    def __init__(self) -> None:
        table = _table()
        # With the interpreter's lock held, as numpy calls them.
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
        self.set_handler = prototype(table[_SET_HANDLER])
        capsule = ctypes.cast(table[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0]
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        usual = ctypes.cast(pointer(capsule, _CAPSULE_NAME), ctypes.POINTER(_Handler))[0]
        self.context = usual.context
        self.malloc = ctypes.PYFUNCTYPE(*_MALLOC)(usual.malloc)
        self.calloc = ctypes.PYFUNCTYPE(*_CALLOC)(usual.calloc)
        self.realloc = ctypes.PYFUNCTYPE(*_REALLOC)(usual.realloc)
        self.free = ctypes.PYFUNCTYPE(*_FREE)(usual.free)


_numpy: Optional[_Numpy] = None
_capsules: Dict[Tuple[Wishes, int], Any] = {}
#: Blocks that are there, by address, and how large they are.
_blocks: Dict[int, int] = {}


def _functions(numpy: _Numpy, wanted: Wishes, least: int) -> List[Any]:
    """The handler's four functions. All that they use is in their closures: modules may be empty before the last array goes."""
    usual_malloc, usual_calloc = numpy.malloc, numpy.calloc
    usual_realloc, usual_free, context = numpy.realloc, numpy.free, numpy.context
    give_back, blocks, new, copy = library().function("ream_free"), _blocks, allocate, ctypes.memmove
    lowest, failed = min, MemoryError

    def block(size: int) -> int:
        try:
            address = new(size, wanted)
        except failed:
            # numpy raises it with the array's shape.
            return 0
        blocks[address] = size
        return address

    def malloc(_: int, size: int) -> Optional[int]:
        if size < least:
            return usual_malloc(context, size)  # type: ignore[no-any-return]
        return block(size)

    def calloc(_: int, count: int, each: int) -> Optional[int]:
        if count * each < least:
            return usual_calloc(context, count, each)  # type: ignore[no-any-return]
        return block(count * each)

    def free(_: int, address: Optional[int], size: int) -> None:
        if address is None or blocks.pop(address, None) is None:
            usual_free(context, address, size)
        else:
            give_back(address)

    def realloc(_: int, address: Optional[int], size: int) -> Optional[int]:
        before = None if address is None else blocks.get(address)
        if address is None or before is None:
            return usual_realloc(context, address, size)  # type: ignore[no-any-return]
        after: Optional[int] = block(size) if size >= least else usual_malloc(context, size)
        if after:
            copy(after, address, lowest(before, size))
            free(0, address, before)
        return after

    kinds = ((_MALLOC, malloc), (_CALLOC, calloc), (_REALLOC, realloc), (_FREE, free))
    return [ctypes.CFUNCTYPE(*kind)(function) for kind, function in kinds]


def _capsule(wanted: Wishes, least: int) -> Any:
    """numpy's name for a handler. Each lives as long as the process: arrays that were made with it need it."""
    global _numpy
    if _numpy is None:
        _numpy = _Numpy()
    found = _capsules.get((wanted, least))
    if found is None:
        functions = _functions(_numpy, wanted, least)
        handler = _Handler(b"ream", 1, None, *(ctypes.cast(function, _ADDRESS).value for function in functions))
        create = ctypes.pythonapi.PyCapsule_New
        create.restype, create.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        name = ctypes.create_string_buffer(_CAPSULE_NAME)
        found = create(ctypes.addressof(handler), name, None)
        forever = ctypes.pythonapi.Py_IncRef
        forever.restype, forever.argtypes = None, (ctypes.py_object,)
        for kept in (found, handler, name, functions):
            forever(kept)
        _capsules[wanted, least] = found
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

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._before or _numpy is None:
            raise RuntimeError("arrays is left without having been entered")
        _numpy.set_handler(self._before.pop())

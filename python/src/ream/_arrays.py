"""Arrays that are blocks of Ream's own: ordinary numpy arrays whose memory is freed with the last array that uses it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from ._library import library
from ._sizes import Size
from ._wishes import Wishes, allocate, wishes

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_MOST = (1 << 63) - 1


class _Block:
    """A block, freed when this is. numpy's arrays over it refer to it, views of them too."""

    __slots__ = ("_address", "_free", "_size")

    def __init__(self, size: int, wanted: Wishes) -> None:
        self._address = 0
        self._size = size
        # Kept here: at the interpreter's end modules may be empty before arrays go.
        self._free = library().function("ream_free")
        self._address = allocate(size, wanted)

    def __del__(self) -> None:
        if self._address:
            self._free(self._address)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "typestr": "|u1", "shape": (self._size,), "data": (self._address, False)}


def _shape(shape: Any) -> Tuple[int, ...]:
    try:
        lengths: Tuple[int, ...] = (operator.index(shape),)
    except TypeError:
        try:
            lengths = tuple(operator.index(length) for length in shape)
        except TypeError:
            raise TypeError("shape: a whole number or several, not {!r}".format(shape)) from None
    if any(length < 0 for length in lengths):
        raise ValueError("shape: {!r} has a negative length".format(shape))
    return lengths


def _make(shape: Any, dtype: Any, order: str, wanted: Wishes) -> Array:
    import numpy

    lengths, kind = _shape(shape), numpy.dtype(dtype)
    if order not in ("C", "F"):
        raise ValueError("order: {!r} is neither C nor F".format(order))
    if kind.hasobject:
        raise TypeError("dtype: arrays of Python objects ({}) do not lie in blocks of their own".format(kind))
    size = kind.itemsize
    for length in lengths:
        size *= length
    if size > _MOST:
        raise ValueError("shape: {!r} is more than can be addressed".format(shape))
    if size == 0:
        # There is nothing to look after.
        return numpy.zeros(lengths, kind, order=order)  # type: ignore[call-overload,no-any-return]
    memory = numpy.asarray(_Block(size, wanted))
    return numpy.ndarray(lengths, kind, memory, order=order)  # type: ignore[arg-type]


def empty(
    shape: Any,
    dtype: numpy.typing.DTypeLike = float,
    *,
    order: str = "C",
    pages: Optional[Size] = None,
    pageable: bool = True,
    pinned: bool = False,
    name: Optional[str] = None,
) -> Array:
    """An array in a block of its own, which reads as zeros.

    `pages`: "auto" (as `ream run --pages` says, large ones without a session), "small" or "huge". `pageable=False`: never
    paged, out of the session's budget, of which a quarter must be left. `pinned=True`: as by `pin`, until `unpin`. `name`:
    up to 31 bytes, which `regions` and `report` show. Small arrays take a whole page each.
    """
    return _make(shape, dtype, order, wishes(pages, pageable, pinned, name))


# Fresh memory is zero already, and takes no room before it is touched.
def zeros(
    shape: Any,
    dtype: numpy.typing.DTypeLike = float,
    *,
    order: str = "C",
    pages: Optional[Size] = None,
    pageable: bool = True,
    pinned: bool = False,
    name: Optional[str] = None,
) -> Array:
    """An array of zeros in a block of its own; arguments as of `empty`."""
    return _make(shape, dtype, order, wishes(pages, pageable, pinned, name))


def full(
    shape: Any,
    value: Any,
    dtype: Optional[numpy.typing.DTypeLike] = None,
    *,
    order: str = "C",
    pages: Optional[Size] = None,
    pageable: bool = True,
    pinned: bool = False,
    name: Optional[str] = None,
) -> Array:
    """An array full of `value` in a block of its own; arguments as of `empty`. Its type is the value's unless given."""
    import numpy

    wanted = wishes(pages, pageable, pinned, name)
    array = _make(shape, numpy.asarray(value).dtype if dtype is None else dtype, order, wanted)
    array[...] = value
    return array


def from_array(
    array: Any,
    dtype: Optional[numpy.typing.DTypeLike] = None,
    *,
    order: str = "K",
    pages: Optional[Size] = None,
    pageable: bool = True,
    pinned: bool = False,
    name: Optional[str] = None,
) -> Array:
    """A copy of an array, or of what can be made one, in a block of its own; arguments as of `empty`.

    `order` "K": as the original lies in memory.
    """
    import numpy

    wanted = wishes(pages, pageable, pinned, name)
    original = numpy.asarray(array)
    if order == "K":
        order = "F" if original.flags.fnc else "C"
    copy = _make(original.shape, original.dtype if dtype is None else dtype, order, wanted)
    copy[...] = original
    return copy

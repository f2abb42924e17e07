"""What a block should be like: the hints of ream_alloc from the arguments of this package's functions."""

from __future__ import annotations

import ctypes
import errno
from typing import NamedTuple, Optional

from ._library import CHints, Error, OutOfMemory, failure, library
from ._sizes import Size, size_in_bytes

_RESIDENT, _PINNED = 1, 2
_NAMED_PAGES = {"auto": 0, "small": 4096, "huge": 2 << 20}
_LONGEST_NAME = 31


class Wishes(NamedTuple):
    """Of one who wants a block. Checked."""

    page_size: int
    flags: int
    name: Optional[bytes]

    def hints(self) -> CHints:
        """As the library reads them."""
        hints = CHints()
        hints.size = ctypes.sizeof(hints)
        hints.page_size, hints.flags, hints.name = self.page_size, self.flags, self.name
        return hints


def wishes(pages: Optional[Size], pageable: bool, pinned: bool, name: Optional[str]) -> Wishes:
    """Checks them."""
    return Wishes(_page_size(pages), _flags(pageable, pinned), checked_name(name))


def _page_size(pages: Optional[Size]) -> int:
    if pages is None:
        return 0
    found = _NAMED_PAGES.get(pages) if isinstance(pages, str) else None
    if found is None:
        try:
            found = size_in_bytes(pages, "pages")
        except ValueError:
            found = -1
    if found not in _NAMED_PAGES.values():
        raise ValueError("pages: {!r} is none of auto, small (4K) and huge (2M)".format(pages))
    return found


def _flags(pageable: bool, pinned: bool) -> int:
    if not isinstance(pageable, bool) or not isinstance(pinned, bool):
        raise TypeError("pageable and pinned are True or False")
    if pinned and not pageable:
        raise ValueError("what is not pageable needs no pin: give one of pageable=False and pinned=True")
    return (0 if pageable else _RESIDENT) | (_PINNED if pinned else 0)


def checked_name(name: Optional[str]) -> Optional[bytes]:
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError("name: text, not {}".format(type(name).__name__))
    try:
        text = name.encode()
    except UnicodeEncodeError:
        text = b""
    if not 1 <= len(text) <= _LONGEST_NAME or any(byte < 32 or byte in b'"\\\x7f' for byte in text):
        rule = "1 to {} bytes of UTF-8 without quotes, backslashes and control characters".format(_LONGEST_NAME)
        raise ValueError("name: {!r} is not {}".format(name, rule))
    return text


def allocate(size: int, wanted: Wishes) -> int:
    """The address of a new block that reads as zeros."""
    hints = wanted.hints()
    address = library().function("ream_alloc")(size, ctypes.byref(hints))
    if not address:
        code = ctypes.get_errno()
        raise failure(code, "ream_alloc: {} bytes".format(size), kind=OutOfMemory if code == errno.ENOMEM else Error)
    return int(address)

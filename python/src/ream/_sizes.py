"""Sizes: numbers of bytes, or text as `ream run` reads it, such as "4G", "1.5 GiB", "300MB"."""

from __future__ import annotations

import operator
import re
from typing import Union

Size = Union[int, str]

_TEXT = re.compile(r"\s*(\d+)(?:\.(\d{1,9}))?\s*([a-zA-Z]*)\s*\Z", re.ASCII)
_LETTERS = "kmgtp"
_MOST = (1 << 64) - 1


def _unit(text: str) -> int:
    text = text.lower()
    if text in ("", "b"):
        return 1
    power = _LETTERS.find(text[0]) + 1
    if power and text[1:] in ("", "ib"):
        return int(1024**power)
    if power and text[1:] == "b":
        return int(1000**power)
    return 0


def size_in_bytes(size: Size, what: str) -> int:
    """Reads a size; `what` is its name in messages."""
    if isinstance(size, str):
        found = _TEXT.match(size)
        unit = _unit(found.group(3)) if found else 0
        if found is None or unit == 0:
            raise ValueError("{}: {!r} is not a size; write 4G, 512M, 1.5GiB or a number of bytes".format(what, size))
        decimals = found.group(2) or ""
        if unit == 1 and int(decimals or 0):
            raise ValueError("{}: {!r} has a part of a byte".format(what, size))
        value = (int(found.group(1) + decimals) * unit) // int(10 ** len(decimals))
    elif isinstance(size, bool):
        raise TypeError("{}: a size is a number of bytes or text like 4G, not {!r}".format(what, size))
    else:
        try:
            value = operator.index(size)
        except TypeError:
            name = type(size).__name__
            raise TypeError("{}: a size is a number of bytes or text like 4G, not {}".format(what, name)) from None
    if not 0 <= value <= _MOST:
        raise ValueError("{}: {!r} is out of range".format(what, size))
    return value


def shown(count: int) -> str:
    """A number of bytes with about three figures and a binary unit."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    text = str(int(value)) if unit == "B" or value >= 100 else "{:.1f}".format(value)
    return "{} {}".format(text[:-2] if text.endswith(".0") else text, unit)

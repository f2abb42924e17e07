"""What there is: the status of the process, and its regions."""

from __future__ import annotations

import ctypes
from typing import List, NamedTuple, Optional

from ._library import CRegion, CStatus, call

_LARGE_PAGES, _BUDGET, _PAGING = 1, 2, 4
_MANAGED, _PINNED = 1, 2
_KINDS = {1: "alloc", 2: "block", 3: "small", 4: "mapping", 5: "static"}


class Status(NamedTuple):
    """The status of this process; sizes are bytes."""

    #: The kernel makes large pages on request.
    supports_large_pages: bool
    #: There is a session, which has a budget.
    supports_budget: bool
    #: What does not fit the budget goes to a store.
    supports_paging: bool
    #: New blocks between `min` and `max` go on large pages and, in a session, are managed.
    enabled: bool
    #: The process belongs to a session.
    session: bool
    #: Pages of this process come and go; that begins when the budget is nearly used.
    paging: bool
    min: int
    #: None: no limit.
    max: Optional[int]
    #: Bytes of a large page; 0 when none is to be had.
    large_page: int
    #: RAM for all processes of the session; 0 without one.
    budget: int
    #: Memory of this process that may be paged, in RAM or not.
    managed: int
    #: Of that, and of the blocks that this package made, what is in RAM and mapped.
    resident: int
    #: How paging is done; empty without a session.
    engine: str


class Region(NamedTuple):
    """A range of memory that Ream looks after; sizes are bytes."""

    #: The same for as long as the region is there.
    id: int
    address: int
    length: int
    #: In RAM and mapped; and how much of that lies on large pages.
    resident: int
    large: int
    #: In RAM, on the way to the store or from it.
    staged: int
    #: In the store alone.
    stored: int
    #: "alloc" (arrays of this package), "block" (large blocks of malloc), "small", "mapping" or "static".
    kind: str
    #: It may be paged.
    managed: bool
    #: Its first page is kept in RAM by `pin`.
    pinned: bool
    #: As given when it was made; else empty.
    name: str


def status() -> Status:
    """The status of this process. Takes about a millisecond for each 10 GiB that are managed."""
    raw = CStatus()
    raw.size = ctypes.sizeof(raw)
    call("ream_status", ctypes.byref(raw))
    return Status(
        supports_large_pages=bool(raw.support & _LARGE_PAGES),
        supports_budget=bool(raw.support & _BUDGET),
        supports_paging=bool(raw.support & _PAGING),
        enabled=bool(raw.enabled),
        session=bool(raw.session),
        paging=bool(raw.paging),
        min=raw.min,
        max=raw.max or None,
        large_page=raw.large_page,
        budget=raw.budget,
        managed=raw.managed,
        resident=raw.resident,
        engine=raw.engine.decode(),
    )


def regions() -> List[Region]:
    """The regions of this process, in order of address. Each is right for a moment of the call."""
    each = ctypes.sizeof(CRegion)
    count = call("ream_regions", None, 0, 0)
    while True:
        # The list may make a region of its own, and other threads may.
        room = count + 16
        raw = (CRegion * room)()
        count = call("ream_regions", raw, room, each)
        if count <= room:
            return [_region(one) for one in raw[:count]]


def _region(raw: CRegion) -> Region:
    return Region(
        id=raw.id,
        address=raw.address,
        length=raw.length,
        resident=raw.resident,
        large=raw.large,
        staged=raw.staged,
        stored=raw.stored,
        kind=_KINDS.get(raw.kind, str(raw.kind)),
        managed=bool(raw.flags & _MANAGED),
        pinned=bool(raw.flags & _PINNED),
        name=raw.name.decode("utf-8", "replace"),
    )

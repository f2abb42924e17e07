"""Parts of the work, for the statistics of a session."""

from __future__ import annotations

import os
from typing import Optional, Tuple

from ._library import call
from ._wishes import checked_name

#: The process that is in a phase (a forked child is in none), and the phase.
_current: Tuple[int, Optional[str]] = (0, None)


def _enter(name: Optional[str]) -> None:
    global _current
    call("ream_phase", checked_name(name))
    _current = (os.getpid(), name)


class phase:
    """A part of the program's work begins, and the last one ends; with None none begins.

    The session's closing summary has a line for each name: how often, how long, what was read, written and waited for.
    Without a session nothing happens. Used as a context, the phase before goes on when it is left:

        ream.phase("load")
        with ream.phase("solve"):
            ...

    A process is in one phase at a time, whichever thread says so.
    """

    def __init__(self, name: Optional[str]) -> None:
        process, before = _current
        self._before = before if process == os.getpid() else None
        _enter(name)

    def __enter__(self) -> "phase":
        return self

    def __exit__(self, *_error: object) -> None:
        _enter(self._before)

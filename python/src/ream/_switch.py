"""Which new memory goes on large pages and is managed, and within which budget.

All of this is the process's, not a thread's: what one thread switches, the blocks of all of them obey. (What only the
arrays of one thread or task should obey is `ream.arrays`.)
"""

from __future__ import annotations

import errno
import os
import threading
import warnings
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Union

from ._library import Error, call, failure, library
from ._sizes import Size, shown, size_in_bytes
from ._state import status

if TYPE_CHECKING:
    Store = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class _Setting(NamedTuple):
    """Of the switch."""

    on: bool
    min: int
    max: int

    def apply(self) -> None:
        call("ream_enable", int(self.on), self.min, self.max)


_OFF = _Setting(False, 0, 0)


def _setting(min: Size, max: Optional[Size]) -> _Setting:
    least = size_in_bytes(min, "min")
    most = 0 if max is None else size_in_bytes(max, "max")
    if most != 0 and most < least:
        raise ValueError("max: {!r} is less than min, {!r}".format(max, min))
    return _Setting(True, least, most)


def _present() -> _Setting:
    now = status()
    return _Setting(now.enabled, now.min, now.max or 0)


class _Entry:
    """A context that is entered; compared by identity."""

    def __init__(self, setting: _Setting, of_budget: bool) -> None:
        self.setting = setting
        self.of_budget = of_budget
        #: The budget to return to; 0: it stays.
        self.budget = 0


class _Contexts:
    """Those that are entered, in order. Threads may leave them in any order: the one entered last counts."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._entered: List[_Entry] = []
        self._before = _OFF
        #: This process, or one that it was forked from, began its session by itself.
        self.own_session = False
        self.store: Optional[bytes] = None

    def enter(self, entry: _Entry, before: _Setting) -> None:
        entry.setting.apply()
        if not self._entered:
            self._before = before
        self._entered.append(entry)

    def leave(self, entry: _Entry) -> None:
        was_last = self._entered[-1] is entry
        self._entered.remove(entry)
        if entry.of_budget and self.own_session and not any(other.of_budget for other in self._entered):
            # What is on large pages is managed where there is a session, so both end.
            self._before = _OFF
            _OFF.apply()
        elif was_last:
            (self._entered[-1].setting if self._entered else self._before).apply()


_contexts = _Contexts()


def _in_child() -> None:
    # Another thread of the parent may have held it.
    _contexts.lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)


def enable(min: Size = 0, max: Optional[Size] = None) -> None:
    """Has blocks of `min` to `max` bytes that are made from now on lie on large pages and, in a session, be managed.

    Without a session a block must have 2 MiB to be on a large page. Blocks that are there stay what they are.
    """
    _setting(min, max).apply()


def disable() -> None:
    """Leaves blocks that are made from now on alone. Those that are there stay what they are, and usable."""
    _OFF.apply()


class _Context(ContextDecorator):
    """Can be entered again, also inside of itself."""

    def __init__(self) -> None:
        self._mine: List[_Entry] = []

    def _leave(self) -> _Entry:
        if not self._mine:
            raise RuntimeError("{} is left without having been entered".format(type(self).__name__))
        with _contexts.lock:
            entry = self._mine.pop()
            _contexts.leave(entry)
        return entry


class large_pages(_Context):
    """While it is entered, new blocks of `min` to `max` bytes lie on large pages, and then it is as it was before.

        with ream.large_pages(min="4M"):
            table = np.zeros((20000, 20000))

    Also a decorator.
    """

    def __init__(self, min: Size = 0, max: Optional[Size] = None) -> None:
        super().__init__()
        self._setting = _setting(min, max)

    def __enter__(self) -> "large_pages":
        with _contexts.lock:
            entry = _Entry(self._setting, of_budget=False)
            _contexts.enter(entry, _present())
            self._mine.append(entry)
        return self

    def __exit__(self, *_error: object) -> None:
        self._leave()


def _directory(store: "Optional[Store]") -> Optional[bytes]:
    if store is None:
        return None
    path = os.fsencode(store)
    if not path or b"\0" in path:
        raise ValueError("store: {!r} is not the name of a directory".format(store))
    return os.path.abspath(path)


def _change(limit: int) -> None:
    result = int(library().function("ream_budget")(limit))
    if result == -errno.ERANGE:
        hint = "{} is below 16 MiB or above four times what the session began with".format(shown(limit))
        raise failure(errno.ERANGE, "ream_budget", hint)
    if result < 0:
        raise failure(-result, "ream_budget")


def _begin(limit: int, store: Optional[bytes]) -> int:
    """Begins a session, or changes the budget of the one that is there; returns what that was, or 0."""
    now = status()
    if not now.session:
        result = int(library().function("ream_start")(limit, store))
        if result == 0:
            _contexts.own_session = True
            _contexts.store = store
            return 0
        if result != -errno.EALREADY:
            hint = {
                errno.ERANGE: "a budget has 16 MiB at least",
                errno.ENOENT: "there is no ream command beside the library or in PATH",
                errno.EINVAL: "what is wrong stands on standard error",
                errno.EPERM: "what is missing stands on standard error",
            }.get(-result, "")
            raise failure(-result, "ream_start", hint)
        now = status()
    if store is not None and store != _contexts.store:
        text = "the session is there already, and what does not fit stays in its store, not in {}"
        warnings.warn(text.format(os.fsdecode(store)), RuntimeWarning, stacklevel=4)
    _change(limit)
    return now.budget


def start(budget: Size, store: "Optional[Store]" = None, *, min: Size = 0, max: Optional[Size] = None) -> None:
    """Has new blocks managed within a budget from now on, until the process ends or `disable` is called.

    `budget` is what they may take of RAM, and what does not fit goes to the directory `store`, or to the one that `ream
    run` would choose. In a process that has a session the budget of that is changed.
    """
    limit, path, setting = size_in_bytes(budget, "budget"), _directory(store), _setting(min, max)
    with _contexts.lock:
        _begin(limit, path)
        setting.apply()


class budget(_Context):
    """While it is entered, new memory is managed within so many bytes of RAM; what does not fit goes to the store.

        with ream.budget("4G", store="/nvme"):
            table = np.random.default_rng().random(1 << 32)

    When it is left, what is stored stays stored and usable, within the budget, and new blocks are not managed. Where the
    process had a session before (`ream run`, or a budget around this one), that gets its budget back and manages on. `min`
    and `max` say how large the blocks are that are managed. Also a decorator.
    """

    def __init__(
        self, budget: Size, store: "Optional[Store]" = None, *, min: Size = 0, max: Optional[Size] = None
    ) -> None:
        super().__init__()
        self._limit = size_in_bytes(budget, "budget")
        self._store = _directory(store)
        self._setting = _setting(min, max)

    def __enter__(self) -> "budget":
        with _contexts.lock:
            before = _present()
            entry = _Entry(self._setting, of_budget=True)
            entry.budget = _begin(self._limit, self._store)
            _contexts.enter(entry, before)
            self._mine.append(entry)
        return self

    def __exit__(self, *_error: object) -> None:
        entry = self._leave()
        if not entry.budget:
            return
        try:
            _change(entry.budget)
        except Error as refused:
            # Not raised: it would hide an exception that ends the context.
            text = "the budget of {} could not be restored: {}".format(shown(entry.budget), refused)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

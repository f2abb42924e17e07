"""Where Ream is: the library to load into a process that was started without it, and the `ream` command.

REAM_HOME, a prefix, comes first and alone when it is set; then what the wheel brought; then what pkg-config knows; then
the usual prefixes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Iterator, List, Optional

INSIDE = "libream_inside.so"
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")
_PREFIXES = ("/usr/local", "/usr")


def home() -> Optional[str]:
    """The prefix that the user named."""
    return os.environ.get("REAM_HOME") or None


def _from_pkg_config() -> Optional[str]:
    tool = shutil.which("pkg-config")
    if tool is None:
        return None
    try:
        found = subprocess.run(
            [tool, "--variable=libdir", "ream"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(found.stdout).strip() or None


def _libraries() -> Iterator[str]:
    prefix = home()
    if prefix is not None:
        yield os.path.join(prefix, "lib", "ream", INSIDE)
        return
    yield os.path.join(_OWN, "lib", "ream", INSIDE)
    directory = _from_pkg_config()
    if directory is not None:
        yield os.path.join(directory, INSIDE)
        yield os.path.join(directory, "ream", INSIDE)
    for prefix in _PREFIXES:
        yield os.path.join(prefix, "lib", "ream", INSIDE)


def library() -> Optional[str]:
    """The path of the library for processes that run already."""
    return next((path for path in _libraries() if os.path.isfile(path)), None)


def _commands() -> Iterator[str]:
    prefix = home()
    if prefix is not None:
        yield os.path.join(prefix, "bin", "ream")
        return
    yield os.path.join(_OWN, "bin", "ream")
    directory = _from_pkg_config()
    if directory is not None:
        yield os.path.normpath(os.path.join(directory, "..", "..", "bin", "ream"))
    for prefix in _PREFIXES:
        yield os.path.join(prefix, "bin", "ream")
    in_path = shutil.which("ream")
    if in_path is not None:
        yield in_path


def command() -> Optional[str]:
    """The path of the `ream` command."""
    return next((path for path in _commands() if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def missing(what: str) -> str:
    """Says in one line that nothing was found, and what to do."""
    prefix = home()
    if prefix is not None:
        places: List[str] = list(_libraries()) if what == INSIDE else list(_commands())
        return "{}: not there; REAM_HOME is to name the prefix of an installation".format(places[0])
    return "{}: not found; install Ream (make install), or name its prefix in REAM_HOME".format(what)

"""`python -m ream ...` is the `ream` command, found as the library is; it takes this process's place."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import _places

#: As env(1) and `ream run` say it: the program was not found, or could not be started.
_NOT_FOUND, _NOT_STARTED = 127, 126


def main() -> NoReturn:
    """Becomes the command."""
    command = _places.command()
    if command is None:
        print("ream: " + _places.missing("ream"), file=sys.stderr)
        sys.exit(_NOT_FOUND)
    try:
        os.execv(command, [command, *sys.argv[1:]])
    except OSError as error:
        print("ream: {}: {}".format(command, error.strerror), file=sys.stderr)
        sys.exit(_NOT_STARTED)


if __name__ == "__main__":
    main()

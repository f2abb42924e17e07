"""Forks, while arrays are paged, with a library whose threads end in a fork handler: its path is the first argument."""

import ctypes
import os
import sys

import numpy as np
import ream

threads = ctypes.CDLL(sys.argv[1])
with ream.budget("64M", store="."):
    pieces = [np.arange(4 << 20, dtype="i8") + k for k in range(6)]
    assert ream.status().paging and ream.status().engine == "usermode", ream.status()
    for turn in range(6):
        threads.begin_threads()
        child = os.fork()
        if child == 0:
            well = all((piece[:: 1 << 9] == np.arange(0, 4 << 20, 1 << 9) + k).all() for k, piece in enumerate(pieces))
            os._exit(0 if well else 1)
        assert os.waitpid(child, 0)[1] == 0, turn
        assert threads.forks_with_threads() == turn + 1
        assert all((piece == np.arange(4 << 20) + k).all() for k, piece in enumerate(pieces)), turn
print("all is well")

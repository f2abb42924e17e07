"""Ream from inside of Python: large pages, and more data than there is RAM.

    import numpy as np
    import ream

    with ream.budget("4G", store="/nvme"):      # at most 4 GiB of RAM; what does not fit goes to /nvme
        table = np.random.default_rng().random(1 << 31)
        print(table.sum())
    print(ream.report())

It works in any Python, whether that was started by `ream run` or not. Sizes are bytes, or text like "4G". Errors are
`ream.Error`, an OSError; wrong arguments are TypeError and ValueError. numpy is needed by what makes arrays alone.
"""

from ._arrays import empty, from_array, full, zeros
from ._handler import arrays
from ._library import Error, OutOfMemory, available
from ._phases import phase
from ._range import advise, pin, unpin
from ._report import Report, report
from ._state import Region, Status, regions, status
from ._switch import budget, disable, enable, large_pages, start
from ._version import VERSION as __version__

# The name by which users know them, in messages too.
for _kind in (Error, OutOfMemory, Region, Report, Status):
    _kind.__module__ = "ream"
del _kind

__all__ = [
    "Error",
    "OutOfMemory",
    "Region",
    "Report",
    "Status",
    "__version__",
    "advise",
    "arrays",
    "available",
    "budget",
    "disable",
    "empty",
    "enable",
    "from_array",
    "full",
    "large_pages",
    "phase",
    "pin",
    "regions",
    "report",
    "start",
    "status",
    "unpin",
    "zeros",
]

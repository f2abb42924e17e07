"""Every function of the package, rightly and wrongly called; arguments: "session" or "alone". numpy is not needed."""

import array
import ctypes
import errno
import mmap
import pickle
import sys

import ream

MIB = 1 << 20


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        text = str(error)
        assert text and "\n" not in text, repr(text)
        return error
    raise AssertionError("{}{} {} does not raise {}".format(call.__name__, arguments, named, kind))


def main():
    session = {"session": True, "alone": False}[sys.argv[1]]
    assert ream.available()
    assert sorted(ream.__all__) == ream.__all__ and all(hasattr(ream, name) for name in ream.__all__)

    now = ream.status()
    assert now.session == session and now.supports_budget == session and now.enabled == session, now
    assert (now.budget >= 16 * MIB and now.engine) if session else (now.budget == 0 and now.engine == ""), now
    assert now.large_page in (0, 2 * MIB) and now.resident <= now.managed + 64 * MIB, now
    assert pickle.loads(pickle.dumps(now)) == now

    # The switch, and its bounds.
    ream.enable()
    assert ream.status().enabled and ream.status().min == 0 and ream.status().max is None
    ream.enable(min="4M", max=1 << 30)
    assert ream.status()[6:8] == (4 * MIB, 1 << 30), ream.status()
    ream.enable(max="1.5 GiB")
    assert ream.status().max == 3 << 29
    ream.disable()
    assert not ream.status().enabled
    for bad in ("", "G", "-1G", "1e9", "1X", "4GG", "1.5", "0x10", -1, 1 << 64, "16384P"):
        raises(ValueError, ream.enable, bad)
        raises(ValueError, ream.enable, 0, bad)
    for bad in (1.5, True, None, b"4G", [], {}, object()):
        raises(TypeError, ream.enable, bad)
    raises(ValueError, ream.enable, "2M", "1M")
    assert not ream.status().enabled, "an error changed the switch"
    for text, value in {"7b": 7, "4k": 4096, "4kB": 4000, " 64M ": 64 * MIB, "1P": 1 << 50, "0.5M": MIB // 2}.items():
        ream.enable(min=text)
        assert ream.status().min == value, text
    ream.disable()

    # Advice and pins on all kinds of memory.
    owners = [bytearray(3 * MIB), array.array("d", bytes(MIB)), mmap.mmap(-1, 4 * MIB), (ctypes.c_char * (1 << 16))()]
    owners += [memoryview(owners[0])[MIB : 2 * MIB], b"x" * MIB]
    for owner in owners:
        for advice in ("willneed", "cold", "sequential", "random", "keep", "normal"):
            ream.advise(owner, advice)
        ream.pin(owner)
        ream.unpin(owner)
    ream.advise(b"", "cold")
    ream.pin(bytearray())
    assert owners[5] == b"x" * MIB and bytes(owners[0]) == bytes(3 * MIB)
    raises(ValueError, ream.advise, owners[5], "drop")
    raises(ValueError, ream.advise, owners[0], "cool")
    for bad in (3, None, b"cold"):
        raises(TypeError, ream.advise, owners[0], bad)
    for bad in (None, 7, "text", object(), [1, 2], memoryview(owners[0])[::2]):
        raises(TypeError, ream.advise, bad, "cold")
        raises(TypeError, ream.pin, bad)
        raises(TypeError, ream.unpin, bad)

    class Lying:
        """Memory that is not there."""

        __array_interface__ = {"version": 3, "typestr": "|u1", "shape": (1 << 30,), "data": (1 << 46, False)}

    error = raises(ream.Error, ream.advise, Lying(), "cold")
    assert error.errno == errno.ENOMEM and isinstance(error, OSError), error
    raises(ream.Error, ream.pin, Lying())
    del owners

    # Phases.
    ream.phase("load")
    with ream.phase("L\u00f6sung 2") as inner:
        assert inner is not None
    ream.phase(None)
    for bad in ("", "x" * 32, "a\nb", "a\0b", 'a"b', "a\\b", "\ud800"):
        raises(ValueError, ream.phase, bad)
    for bad in (7, b"load"):
        raises(TypeError, ream.phase, bad)

    # Budgets.
    for bad in ("", "G", -1):
        raises(ValueError, ream.budget, bad)
        raises(ValueError, ream.start, bad)
    for bad in (None, 1.5):
        raises(TypeError, ream.budget, bad)
    for bad in ("", "a\0b"):
        raises(ValueError, ream.budget, "64M", store=bad)
    raises(TypeError, ream.budget, "64M", store=7)
    raises(ValueError, ream.budget, "64M", min=2, max=1)
    raises(RuntimeError, ream.budget("64M").__exit__, None, None, None)
    raises(RuntimeError, ream.large_pages().__exit__, None, None, None)
    before = ream.status()
    assert raises(ream.Error, ream.budget("1M").__enter__).errno in (errno.ERANGE, errno.ENOSYS)
    assert ream.status()[3:5] == before[3:5], "an error changed the switch or began a session"
    if session:
        with ream.budget("48M"):
            assert ream.status().budget == 48 * MIB and ream.status().enabled
        assert ream.status().budget == before.budget and not ream.status().enabled
        assert raises(ream.Error, ream.start, 1 << 60).errno == errno.ERANGE

    # What it all looks like.
    found = ream.regions()
    assert [one.address for one in found] == sorted(one.address for one in found)
    assert not session or (found and {one.kind for one in found} <= {"alloc", "block", "small", "mapping", "static"})
    for one in found:
        assert one.length % 4096 == 0 and one.resident + one.staged + one.stored <= one.length + 4 * MIB, one
        assert pickle.loads(pickle.dumps(one)) == one
    report = ream.report()
    assert str(report) == repr(report) and str(report).startswith("Ream: "), report
    assert report._repr_html_().startswith("<div>") and len(report.regions) == len(report.regions)
    assert ("budget" in str(report)) == session
    raises(ream.Error, raise_error)
    print("all is well")


def raise_error():
    raise pickle.loads(pickle.dumps(ream.Error(errno.EINVAL, "text")))


main()

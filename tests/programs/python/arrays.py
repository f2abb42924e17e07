"""Arrays in blocks of their own: what they are, how long they live, and numpy's own arrays in `ream.arrays`."""

import copy
import gc
import pickle
import sys
import threading

import numpy as np

import ream

MIB = 1 << 20


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError("{}{} {} does not raise {}".format(call, arguments, named, kind))


def blocks(name=None):
    """How many blocks there are, of this name."""
    gc.collect()
    return sum(one.kind == "alloc" and name in (None, one.name) for one in ream.regions())


def kinds():
    for shape in ((), 0, 1, 7, (3, 0, 4), (5,), (3, 4, 5), [2, 3], np.int64(6), (1, 1, 1, 1, 1, 1, 1, 1)):
        for dtype in (float, "i2", "c16", bool, "U7", "S3", "M8[ns]", [("a", "i4"), ("b", "f8")], ">f4"):
            for order in "CF":
                array = ream.zeros(shape, dtype, order=order)
                plain = np.zeros(shape, dtype, order=order)
                assert type(array) is np.ndarray and array.dtype == plain.dtype and array.shape == plain.shape
                assert array.strides == plain.strides or array.size <= 1, (shape, dtype, order)
                assert array.flags.writeable and array.flags.aligned and (array == plain).all()
                array[...] = array
                ream.advise(array, "willneed")
    values = np.arange(24, dtype="i4").reshape(2, 3, 4)
    for original in (values, values.T, values[:, ::2], values[::-1], np.asfortranarray(values), [[1, 2], [3, 4]], 7, "text"):
        for order in "KCF":
            made = ream.from_array(original, order=order)
            assert (made == np.asarray(original)).all() and made.dtype == np.asarray(original).dtype
    assert ream.from_array(np.asfortranarray(values)).flags.f_contiguous and ream.from_array(values, "f4").dtype == "f4"
    assert (ream.full((3, 4), 7) == 7).all() and ream.full(3, 7).dtype == np.asarray(7).dtype
    assert (ream.full(3, [1, 2, 3], "f8") == [1, 2, 3]).all() and ream.full(2, "abc").tolist() == ["abc"] * 2
    assert ream.empty(3 * MIB, "u1").__array_interface__["data"][0] % (2 * MIB) == 0


def wrong():
    for bad in (-1, (3, -1), 1 << 62, (1 << 40, 1 << 40)):
        raises(ValueError, ream.empty, bad)
    for bad in (None, 1.5, "3", (1.5,), object()):
        raises(TypeError, ream.empty, bad)
    raises(TypeError, ream.empty, 3, object)
    raises(TypeError, ream.empty, 3, [("a", "O")])
    raises(TypeError, ream.empty, 3, "nothing")
    raises(TypeError, ream.from_array, [object()])
    for bad in ("large", "1G", 8192, -4096):
        raises(ValueError, ream.empty, 3, pages=bad)
    raises(TypeError, ream.empty, 3, pages=1.5)
    raises(TypeError, ream.empty, 3, pageable=1)
    raises(TypeError, ream.empty, 3, name=b"x")
    raises(TypeError, ream.empty, 3, name=3)
    for bad in ("", "x" * 32, "\u00fc" * 16, 'a"', "a\\", "a\n", "a\0", "\ud800"):
        raises(ValueError, ream.empty, 3, name=bad)
    raises(ValueError, ream.empty, 3, pinned=True, pageable=False)
    raises(ValueError, ream.empty, 3, order="A")
    raises(MemoryError, ream.empty, 1 << 47, "u1")
    raises(ream.Error, ream.empty, 1 << 47, "u1")
    raises(ValueError, ream.full, 3, [1, 2])
    raises(ValueError, ream.from_array, ["x"], "f8")
    assert blocks() == 0, ream.regions()


def lives():
    array = ream.full(3 * MIB, 7, "u1", name="one")
    views = [array[5:], array.reshape(3, -1), array.view("i8"), array[None].T, memoryview(array), np.asarray(array).T]
    assert blocks("one") == 1 and not array.flags.owndata
    del array
    while views:
        assert blocks("one") == 1 and np.asarray(views[-1]).reshape(-1).view("u1")[0] == 7
        views.pop()
    assert blocks("one") == 0
    for copied in (copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array)), np.array):
        array = ream.full(MIB, 3, "u1", name="two")
        other = copied(array)
        array[:] = 4
        del array
        assert blocks("two") == 0 and (other == 3).all()
    # In a cycle, by another thread, by many at once.
    array = ream.zeros(MIB, name="cycle")
    cycle = [array]
    cycle.append(cycle)
    del array, cycle
    assert blocks("cycle") == 0

    def work(seed):
        kept = []
        for turn in range(300):
            kept.append(ream.full(1 + (turn * 7919 + seed * 104729) % 300000, turn % 251, "u1", name="many"))
            if len(kept) > 20:
                old = kept.pop((turn * seed) % 20)
                assert (old == old[0]).all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blocks("many") == 0
    raises(ValueError, ream.zeros(10).resize, 20)


def advised(session):
    array = ream.full(8 * MIB, 9, "u1", name="advised")
    ream.advise(array[::2], "cold")
    raises(ValueError, ream.advise, array[::2], "drop")
    ream.advise(array[4 * MIB :], "drop")
    assert (array[: 4 * MIB] == 9).all() and not array[4 * MIB :].any()
    array.flags.writeable = False
    raises(ValueError, ream.advise, array, "drop")
    ream.advise(array, "willneed")
    raises(ValueError, ream.advise, np.array([object()] * 100000), "drop")
    region = next(one for one in ream.regions() if one.name == "advised")
    assert region.length == 8 * MIB and region.managed == session and not region.pinned, region
    ream.advise(region, "cold")
    ream.pin(array[:MIB])
    assert next(one for one in ream.regions() if one.name == "advised").pinned == session
    ream.unpin(array)
    assert (array[: 4 * MIB] == 9).all()
    kept = ream.zeros(MIB, pageable=False, name="kept")
    assert not next(one for one in ream.regions() if one.name == "kept").managed
    pinned = ream.zeros(MIB // 8, pinned=True, pages="small", name="pinned")
    assert next(one for one in ream.regions() if one.name == "pinned").pinned == session
    assert kept.sum() == pinned.sum() == 0
    assert "kept (alloc, not managed" in str(ream.report()) and "kept" in ream.report()._repr_html_()


def handled():
    """numpy's own arrays, in `ream.arrays`."""
    if tuple(map(int, np.__version__.split(".")[:2])) < (1, 22):
        raises(ream.Error, ream.arrays().__enter__)
        return
    with ream.arrays(name="numpy's"):
        made = [np.zeros(4 * MIB, "u1"), np.empty(3 * MIB, "u1"), np.ones((700, 700)), np.arange(MIB, dtype="f4")]
        small = [np.arange(count) for count in range(300)]
        assert blocks("numpy's") == 4, ream.regions()
        with ream.arrays(name="inner", min=1):
            inner = np.ones(1000)
            assert blocks("inner") == 1

            def elsewhere():
                others.append(np.zeros(4 * MIB, "u1"))

            others = []
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            # A thread has its own handler, also where threads take over what their starter had: then it is this one.
            assert others[0].sum() == 0
            del others
        grown = np.arange(1000)
        grown.resize(MIB, refcheck=False)
        assert (grown[:1000] == np.arange(1000)).all() and not grown[1000:].any()
        made[0][:] = 5
        made[0].resize(6 * MIB, refcheck=False)
        assert (made[0][: 4 * MIB] == 5).all() and not made[0][4 * MIB :].any()
        made[0].resize(100, refcheck=False)
        assert (made[0] == 5).all() and blocks("numpy's") == 3
        raises(MemoryError, np.zeros, 1 << 47, "u1")
        total = made[2] @ made[2]
    outside = np.zeros(4 * MIB, "u1")
    assert blocks("numpy's") == 4 and total[0, 0] == 700 and inner.sum() == 1000, ream.regions()
    assert sum(array.sum() for array in small) == sum(n * (n - 1) // 2 for n in range(300)) and outside.sum() == 0
    del made, total, inner
    assert blocks() == 0
    handler = ream.arrays(name="again")
    with handler:
        with handler:
            again = np.ones(4 * MIB, "u1")
        raises(RuntimeError, ream.arrays().__exit__, None, None, None)
    assert blocks("again") == 1 and again.all()
    raises(ValueError, ream.arrays, pages="odd")
    raises(TypeError, ream.arrays, min=None)


def main():
    session = {"session": True, "alone": False}[sys.argv[1]]
    kinds()
    wrong()
    lives()
    assert blocks() == 0
    advised(session)
    assert blocks() == 0
    handled()
    assert blocks() == 0, ream.regions()
    # Some live to the very end, in places that are emptied late.
    with ream.arrays(name="late"):
        sys.late = [np.ones(3 * MIB, "u1"), ream.full(MIB, 1, "u1")]
        sys.late.append(sys.late)
    print("all is well", flush=True)


main()

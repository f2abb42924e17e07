"""`large_pages` and `budget` as contexts: what they switch, and that they restore it; arguments: "session" or "alone"."""

import sys
import threading

import numpy as np

import ream

MIB = 1 << 20


def switch():
    return ream.status()[3:4] + ream.status()[6:8]


def blocks():
    """Large blocks of malloc that were put on large pages, by address."""
    return {one.address: one for one in ream.regions() if one.kind in ("block", "mapping")}


def of(array):
    """The region in which an array lies, if there is one."""
    address = array.__array_interface__["data"][0]
    found = [one for one in ream.regions() if one.address <= address < one.address + one.length]
    return found[0] if found else None


def order():
    before = switch()
    with ream.large_pages(min="3M", max="9M") as given:
        assert isinstance(given, ream.large_pages) and switch() == (True, 3 * MIB, 9 * MIB)
        with ream.large_pages(min="5M"):
            assert switch() == (True, 5 * MIB, None)
            ream.disable()
            assert not ream.status().enabled
        assert switch() == (True, 3 * MIB, 9 * MIB)
        try:
            with ream.large_pages():
                raise KeyError
        except KeyError:
            assert switch() == (True, 3 * MIB, 9 * MIB)
    assert switch() == before

    again = ream.large_pages(min="7M")
    for _ in range(3):
        with again:
            with again:
                assert switch() == (True, 7 * MIB, None)
            assert switch() == (True, 7 * MIB, None)
        assert switch() == before

    @ream.large_pages(max="64M")
    def inside(depth):
        assert switch() == (True, 0, 64 * MIB)
        return depth if depth == 0 else inside(depth - 1)

    assert inside(3) == 0 and switch() == before
    # Left in another order than entered: the one entered last counts.
    first, second = ream.large_pages(min="3M"), ream.large_pages(min="4M")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert switch() == (True, 4 * MIB, None)
    second.__exit__(None, None, None)
    assert switch() == before


def threads():
    before, failures = switch(), []

    def work(seed):
        try:
            for turn in range(250):
                with ream.large_pages(min=MIB * (1 + (seed + turn) % 5)):
                    array = np.full(MIB // 8 * (1 + (turn * seed) % 9), turn)
                if turn % 10 == 0:
                    ream.regions()
                assert (array == turn).all()
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures and switch() == before, (failures, switch(), before)


def obeyed():
    """numpy's own arrays obey the switch, since its malloc is Ream's."""
    ream.disable()
    for make in (np.zeros, np.empty, np.ones):
        with ream.large_pages(min="6M", max="20M"):
            inside, small, large = make(8 * MIB, "u1"), make(5 * MIB, "u1"), make(24 * MIB, "u1")
        outside = make(8 * MIB, "u1")
        for array in (inside, small, large, outside):
            array[:] = 3
        assert of(inside) is not None and of(inside).length >= 8 * MIB, ream.regions()
        if ream.status().large_page:
            assert of(inside).resident >= 7 * MIB, of(inside)
        for array in (small, large, outside):
            found = of(array)
            assert found is None or not found.managed and found.large == 0, (make, array.nbytes, found)
        inside.resize(30 * MIB, refcheck=False)
        outside.resize(30 * MIB, refcheck=False)
        assert (inside[: 8 * MIB] == 3).all() and not inside[8 * MIB :].any() and (outside[: 8 * MIB] == 3).all()
        del inside, small, large, outside
    ream.enable()
    kept = [np.full(3 * MIB, turn, "u1") for turn in range(6)]
    ream.disable()
    assert all((array == turn).all() for turn, array in enumerate(kept))
    del kept, array


def main():
    assert ream.status().session == {"session": True, "alone": False}[sys.argv[1]]
    order()
    threads()
    obeyed()
    print("all is well")


main()

"""multiprocessing, started in all three ways, with arrays of this package; arguments: "session" or "alone"."""

import multiprocessing
import sys

import numpy as np

import ream

MIB = 1 << 20
data = None


def of_parent(part):
    """The parent's arrays, by fork."""
    return int(data[part::8].sum())


def changes_its_own(value):
    before = int(data.sum())
    data[:] = value
    ream.advise(data, "cold")
    return before, bool((data == value).all()), len([one for one in ream.regions() if one.name == "data"])


def of_own(seed):
    """Arrays that the child makes, and one that it sends back."""
    ream.phase("child")
    with ream.large_pages(min="2M"):
        plain = np.full(5 * MIB, seed % 251, "u1")
    array = ream.full(MIB, seed, "i4", name="own")
    with ream.arrays(name="numpy's"):
        other = np.full(4 * MIB, seed % 251, "u1")
    names = sorted(one.name for one in ream.regions() if one.name in ("own", "numpy's"))
    assert names == ["numpy's", "own"], names
    assert (plain == other[0]).all()
    return array[:1000], int(array.sum()), ream.status().session


def takes(array):
    return int(array.sum())


def main():
    global data
    session = {"session": True, "alone": False}[sys.argv[1]]
    data = ream.from_array(np.arange(4 * MIB, dtype="i4") % 1000, name="data")
    sums = [int(data[part::8].sum()) for part in range(8)]
    for method in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            if method == "fork":
                assert pool.map(of_parent, range(8)) == sums
                for before, changed, count in pool.map(changes_its_own, [7, 7]):
                    assert changed and count == 1, (changed, count)
            for seed, (array, total, there) in enumerate(pool.map(of_own, range(6))):
                assert (array == seed).all() and total == seed * MIB and there == session, (method, seed, there)
            assert pool.map(takes, [data[:1000], data[::1000]]) == [int(data[:1000].sum()), int(data[::1000].sum())]
        assert [int(data[part::8].sum()) for part in range(8)] == sums, "a child changed its parent's array"
        print(method)
    print("all is well")


if __name__ == "__main__":
    main()

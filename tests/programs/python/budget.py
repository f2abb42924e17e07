"""A job of four times the budget in an ordinary Python; arguments: MiB of the budget, and the store's directory."""

import hashlib
import multiprocessing
import os
import sys

import numpy as np

import ream

MIB = 1 << 20


def peak():
    """Most bytes of RAM that this process ever had."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def words(seed, count):
    """Reproducible noise, which does not compress."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << 62, count, dtype="i8")


def digest(array):
    return hashlib.sha256(array).hexdigest()


def made_by_child(seed):
    """A child that is forked belongs to the session; one that is started anew has none before it asks for one."""
    array = words(seed, 4 * MIB // 8)
    return ream.status().session, digest(array)


def main():
    budget, store = int(sys.argv[1]) * MIB, sys.argv[2]
    piece = budget // 8
    expected = [digest(words(seed, piece // 8)) for seed in range(32)]
    assert not ream.status().session
    plain = np.ones(8 * MIB, "u1")
    # A program may outrun the watcher before paging begins.
    most = budget + budget // 50 + 128 * MIB

    with ream.budget(budget, store=store) as given:
        assert isinstance(given, ream.budget)
        now = ream.status()
        assert now.session and now.enabled and now.budget == budget, now
        pieces = [words(seed, piece // 8) for seed in range(16)]
        named = ream.empty((16, piece), "u1", name="named")
        for row, seed in zip(named, range(16, 32)):
            row[:] = words(seed, piece // 8).view("u1")
        assert ream.status().paging and ream.status().resident <= most, ream.status()
        for _ in range(2):
            for array, text in zip(pieces, expected):
                assert digest(array) == text
        ream.advise(named, "sequential")
        assert [digest(row) for row in named] == expected[16:]
        assert sum(one.stored for one in ream.regions()) >= 2 * budget, ream.regions()
        # Within: a smaller one, with the same store; and one that has another, which it does not get.
        with ream.budget(budget // 2, store=store):
            assert ream.status().budget == budget // 2
            assert digest(pieces[3]) == expected[3]
        assert ream.status().budget == budget and ream.status().enabled
        assert "budget" in str(ream.report()) and "in the store" in ream.report()._repr_html_()

    # Left: what is stored stays usable, within the budget; new blocks are not managed.
    now = ream.status()
    assert now.session and not now.enabled and now.budget == budget, now
    managed = now.managed
    outside = np.ones(64 * MIB, "u1")
    assert ream.status().managed < managed + 32 * MIB and outside.all() and plain.all()
    del outside
    for number in (5, 0, 15):
        assert digest(pieces[number]) == expected[number]
        pieces[number] += 1
        pieces[number] -= 1
    assert [digest(array) for array in pieces] == expected[:16] and [digest(row) for row in named] == expected[16:]
    assert peak() <= most + 160 * MIB, (peak(), most)

    # Large pages around it end with it: where there is a session, what lies on them is managed.
    with ream.large_pages():
        with ream.budget(budget):
            assert ream.status().enabled
        assert not ream.status().enabled
    assert not ream.status().enabled

    # Entered again: the same session.
    with ream.budget(budget):
        again = [words(seed, piece // 8) for seed in range(16)]
        assert [digest(array) for array in again] == expected[:16]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert [there for there, _ in pool.map(made_by_child, range(4))] == [True] * 4
    del again
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(made_by_child, [1])[0][1] == digest(words(1, 4 * MIB // 8))
    assert [digest(array) for array in pieces] == expected[:16]
    before = ream.status().managed
    del pieces, array, named, row
    assert ream.status().managed <= before - 3 * budget, (before, ream.status())
    ream.start(budget)
    assert ream.status().enabled
    kept = np.ones(8 * MIB, "u1")
    ream.disable()
    assert kept.all() and os.listdir(store) == [], os.listdir(store)
    print("all is well")


if __name__ == "__main__":
    main()

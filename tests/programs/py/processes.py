"""multiprocessing, by fork and by spawn, over data of argument 1 MiB; in plain Python, numpy where it is there."""

import array
import multiprocessing
import sys

data = None


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    return x ^ (x >> 27)


def make(words, seed):
    """Distinct words: a block that is computed, repeated with a stamp for each repetition."""
    block = array.array("Q", (mix(seed + i) for i in range(4096)))
    result = array.array("Q")
    for turn in range(words // len(block)):
        block[turn % 4096] = mix(turn)
        result.extend(block)
    return result


def of_parent(part):
    first, count = part
    return sum(data[first : first + count]) & 0xFFFFFFFFFFFF


def of_own(seed):
    mine = make(1 << 20, seed)
    mine.reverse()
    return sum(mine) & 0xFFFFFFFFFFFF


def main():
    global data
    words = int(sys.argv[1]) * (1 << 20) // 8
    data = make(words, 1)
    part = words // 8
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print("fork", pool.map(of_parent, [(i * part, part) for i in range(8)]))
        print("fork, own", pool.map(of_own, range(4)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("spawn", pool.map(of_own, range(4)))
    print("parent", sum(data) & 0xFFFFFFFFFFFF)


if __name__ == "__main__":
    main()

"""Loops as Python's own benchmarks have them, which allocate nothing of a mebibyte. Argument: libream_inside.so, to have Ream
switched on for blocks of that size; none for an ordinary Python. Prints the least seconds of five runs of each, whose result
must be what it comes to by another way; BENCH_CORRUPT names one that is spoilt."""

import ctypes
import json
import os
import sys
import time

if len(sys.argv) > 1:
    enable = ctypes.CDLL(sys.argv[1]).ream_enable
    enable.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
    if enable(1, 1 << 20, 0) != 0:
        sys.exit("ream_enable failed")


def calls():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(21)


def lists():
    for _ in range(20):
        made = []
        for i in range(5000):
            made.append((i, i * 7 % 1000))
        made.sort(key=lambda pair: pair[1])
    return made


def dictionaries():
    for _ in range(20):
        counts = {}
        for i in range(5000):
            counts[i * 31 % 997] = counts.get(i * 31 % 997, 0) + 1
        made = sorted(counts.items())
    return made


def strings():
    for _ in range(20):
        text = " ".join(str(i) for i in range(5000))
        distinct = len(set(text.replace("7", "x").split()))
    return distinct


def objects():
    class Node:
        def __init__(self, below):
            self.below = below

    for _ in range(60):
        node = None
        for _ in range(1000):
            node = Node(node)
    return node


def texts():
    data = {str(i): [i, i / 3, "text"] for i in range(1000)}
    for _ in range(10):
        read = json.loads(json.dumps(data))
    return read


def buffers():
    for i in range(60000):
        made = bytearray(1000 + i % 50 * 1000)
    return made


def fibonacci():
    one, next_one = 0, 1
    for _ in range(21):
        one, next_one = next_one, one + next_one
    return one


def depth(node):
    count = 0
    while node is not None:
        node, count = node.below, count + 1
    return count


CHECKS = {
    calls: lambda made: made == fibonacci(),
    lists: lambda made: made == [(i, k) for k in range(1000) for i in range(k * 143 % 1000, 5000, 1000)],
    dictionaries: lambda made: made == [(i * 31 % 997, 5 + (i < 15)) for i in sorted(range(997), key=lambda i: i * 31 % 997)],
    strings: lambda made: made == 5000,
    objects: lambda made: depth(made) == 1000,
    texts: lambda made: made == {str(i): [i, i / 3, "text"] for i in range(1000)},
    buffers: lambda made: made == bytes(1000 + 59999 % 50 * 1000),
}
SPOILT = {
    calls: lambda made: made + 1,
    lists: lambda made: made[1:] + made[:1],
    dictionaries: lambda made: made[1:],
    strings: lambda made: made + 1,
    objects: lambda made: made.below,
    texts: lambda made: {**made, "0": 0},
    buffers: lambda made: made[1:],
}

for loop, is_right in CHECKS.items():
    least = 1e9
    for _ in range(5):
        begun = time.perf_counter()
        made = loop()
        least = min(least, time.perf_counter() - begun)
    if os.environ.get("BENCH_CORRUPT") == loop.__name__:
        made = SPOILT[loop](made)
    if not is_right(made):
        sys.exit(f"{loop.__name__}: WRONG RESULT")
    print(loop.__name__, least)

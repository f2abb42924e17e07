"""Loops as Python's own benchmarks have them, which allocate nothing of a mebibyte. Argument: libream_inside.so, to have Ream
switched on for blocks of that size; none for an ordinary Python. Prints the least seconds of five runs of each."""

import ctypes
import json
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

    fib(21)


def lists():
    for _ in range(20):
        made = []
        for i in range(5000):
            made.append((i, i * 7 % 1000))
        made.sort(key=lambda pair: pair[1])


def dictionaries():
    for _ in range(20):
        counts = {}
        for i in range(5000):
            counts[i * 31 % 997] = counts.get(i * 31 % 997, 0) + 1
        sorted(counts.items())


def strings():
    for _ in range(20):
        text = " ".join(str(i) for i in range(5000))
        len(set(text.replace("7", "x").split()))


def objects():
    class Node:
        def __init__(self, below):
            self.below = below

    for _ in range(60):
        node = None
        for _ in range(1000):
            node = Node(node)


def texts():
    data = {str(i): [i, i / 3, "text"] for i in range(1000)}
    for _ in range(10):
        json.loads(json.dumps(data))


def buffers():
    for i in range(60000):
        bytearray(1000 + i % 50 * 1000)


for loop in (calls, lists, dictionaries, strings, objects, texts, buffers):
    least = 1e9
    for _ in range(5):
        begun = time.perf_counter()
        loop()
        least = min(least, time.perf_counter() - begun)
    print(loop.__name__, least)

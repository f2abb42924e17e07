"""numpy arrays of argument 1 MiB in all: sorted, summed, indexed, multiplied, pickled, and grown."""

import hashlib
import io
import pickle
import sys

import numpy


def digest(array):
    return hashlib.sha256(numpy.ascontiguousarray(array).view(numpy.uint8)).hexdigest()[:16]


def main():
    words = int(sys.argv[1]) * (1 << 20) // 8 // 4
    generator = numpy.random.Generator(numpy.random.PCG64(7))
    first = generator.integers(0, 1 << 60, words, dtype=numpy.int64)
    second = first[::-1].copy()
    order = numpy.argsort(first, kind="stable")
    print("sorted", digest(first[order]))
    print("sums", int(first.sum() & 0xFFFFFFFF), int((first ^ second).sum() & 0xFFFFFFFF))
    second += first
    print("added", digest(second))
    first.sort()
    print("in place", bool((first[1:] >= first[:-1]).all()), digest(first))
    side = int(min(words, 1 << 20) ** 0.5)
    square = second[: side * side].reshape(side, side).astype(numpy.float64)
    print("transposed", digest(numpy.ascontiguousarray(square.T)))
    del order, second
    store = io.BytesIO()
    pickle.dump({"array": first, "text": ["x" * i for i in range(2000)]}, store, protocol=4)
    back = pickle.loads(store.getbuffer())
    print("pickled", bool((back["array"] == first).all()), len(back["text"]))
    table = {i: str(i) * 3 for i in range(200000)}
    print("dictionary", sum(len(value) for value in table.values()))


main()

"""Reads an index of files (a path, blanks, who owns it; a line each) into numpy arrays and counts: the most frequent
file names, the fullest folders, the owners of most files. Written as one writes such a thing when memory is no worry.

The result goes to standard output; the time of each step and the most memory used go to standard error."""

import hashlib
import resource
import sys
import time

import numpy

BEGUN = time.monotonic()


def step(what):
    print(f"  {time.monotonic() - BEGUN:6.1f} s  {what}", file=sys.stderr, flush=True)


def column(text, starts, lengths, width):
    """The pieces of the text that begin at `starts`, as fixed-width strings."""
    result = numpy.zeros((len(starts), width), dtype=numpy.uint8)
    offsets = numpy.arange(width)
    for first in range(0, len(starts), 1 << 12):
        some = slice(first, first + (1 << 12))
        places = starts[some, None] + offsets
        inside = offsets < lengths[some, None]
        result[some] = numpy.where(inside, text[numpy.minimum(places, len(text) - 1)], 0)
    return result.view(f"S{width}").ravel()


def count(what, values):
    """Prints the five most frequent values."""
    values = numpy.sort(values)
    changes = numpy.flatnonzero(values[1:] != values[:-1]) + 1
    firsts = numpy.concatenate(([0], changes))
    counts = numpy.diff(numpy.concatenate((firsts, [len(values)])))
    print(f"{what}: {len(firsts)} different ones")
    for place in numpy.lexsort((firsts, -counts))[:5]:
        print(f"  {counts[place]:8d}  {values[firsts[place]].decode('utf-8', 'replace')}")
    digest = hashlib.sha256()
    digest.update(values)
    digest.update(counts)
    print(f"  checksum {digest.hexdigest()[:16]}")
    step(f"counted {what}")


def main():
    text = numpy.fromfile(sys.argv[1], dtype=numpy.uint8)
    step(f"read {len(text) / 1e6:.0f} MB")
    ends = numpy.flatnonzero(text == ord("\n"))
    starts = numpy.concatenate(([0], ends[:-1] + 1))
    blanks = numpy.flatnonzero((text == ord(" ")) | (text == ord("\t")))
    owners = blanks[numpy.searchsorted(blanks, ends) - 1] + 1
    slashes = numpy.flatnonzero(text == ord("/"))
    step(f"found {len(ends)} lines, {len(blanks)} blanks, {len(slashes)} slashes")
    # A path ends at the first blank of the padding before its owner.
    texts = numpy.flatnonzero((text[:-1] != ord(" ")) & ((text[1:] == ord(" ")) | (text[1:] == ord("\t"))))
    path_ends = texts[numpy.searchsorted(texts, owners - 1) - 1] + 1
    names = slashes[numpy.maximum(numpy.searchsorted(slashes, path_ends) - 1, 0)] + 1
    names = numpy.where((names > starts) & (names < path_ends), names, starts)
    del blanks, slashes, texts
    step("found paths and names")
    all_names = column(text, names, path_ends - names, 64)
    all_folders = column(text, starts, names - starts, 112)
    all_owners = column(text, owners, ends - owners, 48)
    step("cut names, folders and owners out")
    count("names", all_names)
    count("folders", all_folders)
    count("owners", all_owners)
    print(f"{len(ends)} files")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    step(f"done; at most {peak} MiB in memory")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="ascii") as file:
            file.write(f"{peak}\n")


main()

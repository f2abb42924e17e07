"""What is where, for people: text for a terminal, and a picture for Jupyter."""

from __future__ import annotations

import html
import os
import struct
import sys
from typing import List, Optional, Tuple

from ._sizes import shown
from ._state import Region, Status, regions, status

_ROWS = 20
_WIDTH = 24
_CELLS = 96
#: Pages that are looked at for a cell of the picture.
_LOOKS = 16
_PAGE = 4096
_PRESENT = 1 << 63

# Shares of a region, in the order of drawing: on large pages, on small ones, on the way, in the store, untouched.
_SIGNS = "█▓▒░·"
_PLAIN_SIGNS = "##+-."
_COLOURS = ("#1b7f5c", "#6cc3a0", "#e3b341", "#7f8fa6", "#e4e7eb")
_LEGEND = ("in RAM, on large pages", "in RAM, on small pages", "on the way", "in the store", "untouched")


def _shares(region: Region) -> List[int]:
    """Bytes of each share. They are right for a moment of the call only, and are cut where they do not add up."""
    left, shares = region.length, []
    for part in (region.large, max(region.resident - region.large, 0), region.staged, region.stored):
        part = min(part, left)
        left -= part
        shares.append(part)
    return shares + [left]


def _bar(region: Region, signs: str) -> str:
    text, done, drawn = "", 0, 0
    for sign, part in zip(signs, _shares(region)):
        done += part
        end = round(_WIDTH * done / region.length) if region.length else 0
        text += sign * (end - drawn)
        drawn = end
    return text.ljust(_WIDTH)


def _label(region: Region) -> str:
    kind = region.kind + ("" if region.managed else ", not managed") + (", pinned" if region.pinned else "")
    return "{} ({})".format(region.name, kind) if region.name else kind


def _summary(now: Status, all_of_them: List[Region]) -> List[str]:
    if now.session:
        first = "Ream: budget {}, engine {}, {}".format(
            shown(now.budget), now.engine, "paging" if now.paging else "all fits so far"
        )
    else:
        first = "Ream: no session, nothing is paged"
    if not now.large_page:
        second = "large pages: none to be had"
    elif now.enabled:
        least = " from {}".format(shown(now.min)) if now.min else ""
        most = " to {}".format(shown(now.max)) if now.max is not None else ""
        second = "new blocks{}{}: on large pages{}".format(least, most, ", managed" if now.session else "")
    else:
        second = "new blocks: left alone"
    total, stored = sum(one.length for one in all_of_them), sum(one.stored for one in all_of_them)
    resident, large = sum(one.resident for one in all_of_them), sum(one.large for one in all_of_them)
    third = "{} regions, {}: {} in RAM, of that {} on large pages; {} in the store".format(
        len(all_of_them), shown(total), shown(resident), shown(large), shown(stored)
    )
    return [first, second, third]


def _encodes(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _strip(pagemap: Optional[int], region: Region) -> List[Optional[float]]:
    """Which share of each cell's pages is mapped, by a few of them; nothing where the kernel does not tell."""
    pages = region.length // _PAGE
    cells: List[Optional[float]] = []
    count = max(1, min(_CELLS, pages))
    for cell in range(count):
        first, end = pages * cell // count, pages * (cell + 1) // count
        looks = max(1, min(_LOOKS, end - first))
        present = 0
        for look in range(looks):
            page = region.address // _PAGE + first + (end - first) * look // looks
            try:
                word = os.pread(pagemap, 8, page * 8) if pagemap is not None else b""
            except OSError:
                word = b""
            if len(word) < 8:
                return []
            present += bool(struct.unpack("=Q", word)[0] & _PRESENT)
        cells.append(present / looks)
    return cells


def _boxes(parts: List[Tuple[float, str]]) -> str:
    """A picture of coloured boxes side by side, each with its share of the width."""
    at, drawn = 0.0, ""
    for share, colour in parts:
        if share > 0:
            box = '<rect x="{:.2f}%" y="0" width="{:.2f}%" height="100%" fill="{}"/>'
            drawn += box.format(100 * at, 100 * share, colour)
        at += share
    return '<svg width="100%" height="12" style="display:block;margin:2px 0">{}</svg>'.format(drawn)


def _mixed(share: float) -> str:
    """From the colour of what is untouched to that of what is in RAM."""
    low, high = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (_COLOURS[4], _COLOURS[0]))
    return "#" + "".join("{:02x}".format(round(a + (b - a) * share)) for a, b in zip(low, high))


class Report:
    """What `report` found, at the moment when it was called."""

    def __init__(self) -> None:
        self.status = status()
        self.regions = regions()
        # The picture is of this moment, too.
        try:
            pagemap: Optional[int] = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pagemap = None
        try:
            self._strips = [_strip(pagemap, region) for region in self._largest()]
        finally:
            if pagemap is not None:
                os.close(pagemap)

    def _largest(self) -> List[Region]:
        return sorted(self.regions, key=lambda region: -region.length)[:_ROWS]

    def __str__(self) -> str:
        signs = _SIGNS if _encodes(_SIGNS) else _PLAIN_SIGNS
        lines = _summary(self.status, self.regions)
        largest = self._largest()
        if largest:
            head = "{:>14}  {:>9}  {:>9}  {:>9}  {:>9}  {:{}}  {}"
            lines.append(head.format("ADDRESS", "SIZE", "IN RAM", "LARGE", "STORED", "", _WIDTH, "WHAT").rstrip())
            for one in largest:
                sizes = [shown(count) for count in (one.length, one.resident, one.large, one.stored)]
                lines.append(head.format("{:x}".format(one.address), *sizes, _bar(one, signs), _WIDTH, _label(one)))
            if len(self.regions) > len(largest):
                lines.append("and {} smaller ones".format(len(self.regions) - len(largest)))
            names = ", ".join("{} {}".format(*pair) for pair in zip(dict.fromkeys(signs), _legend(signs)))
            lines.append(names)
        text = "\n".join(lines)
        return text if _encodes(text) else text.encode("ascii", "replace").decode()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = ""
        for one, strip in zip(self._largest(), self._strips):
            shares = [(part / one.length, colour) for part, colour in zip(_shares(one), _COLOURS)]
            picture = _boxes(shares)
            if strip:
                picture += _boxes([(1 / len(strip), _mixed(share or 0)) for share in strip])
            sizes = "".join(
                '<td style="text-align:right">{}</td>'.format(shown(count))
                for count in (one.length, one.resident, one.large, one.stored)
            )
            rows += '<tr><td>{}</td><td><code>{:x}</code></td>{}<td style="min-width:24em">{}</td></tr>'.format(
                html.escape(_label(one)), one.address, sizes, picture
            )
        legend = " ".join(
            '<span style="background:{};padding:0 .6em;margin:0 .3em 0 1em"></span>{}'.format(colour, html.escape(text))
            for colour, text in zip(_COLOURS, _LEGEND)
        )
        head = "".join("<th>{}</th>".format(text) for text in ("what", "address", "size", "in RAM", "large", "stored"))
        head += '<th style="text-align:left">how much is where (above), and which parts are in RAM (below)</th>'
        lines = "<br>".join(html.escape(line) for line in _summary(self.status, self.regions))
        smaller = len(self.regions) - len(self._strips)
        more = "<p>and {} smaller ones</p>".format(smaller) if smaller > 0 else ""
        table = "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>".format(head, rows)
        return "<div><p>{}</p>{}{}<p>{}</p></div>".format(lines, table, more, legend)


def _legend(signs: str) -> List[str]:
    """Signs that stand for two shares have one entry."""
    if signs == _SIGNS:
        return list(_LEGEND)
    return ["in RAM", *_LEGEND[2:]]


def report() -> Report:
    """What is where in this process: prints as text, and shows itself as a picture in Jupyter."""
    return Report()

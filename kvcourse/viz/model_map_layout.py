"""Lesson 04: where each box of a model map stands, and the arrows between them. Knows nothing about tensors or drawing.

Inches, y downwards. Left lane: parameters. Right lane: what is computed; its last column is the residual stream.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from kvcourse.viz import style
from kvcourse.viz.model_map_tables import BLOCK_ROWS, ROWS, Part

WIDTH = 6.78
LEFT_LANE, RIGHT_LANE = (0.1, 2.72), (2.94, 6.68)
HEADER, PITCH, BOX = 1.34, 0.5, 0.4
GAP = 0.3  # above and below a block: room for the other blocks
_WEIGHTS = (0.2, 2.62)  # from where to where parameters stand
_COLUMNS = (3.22, 4.36, 5.54)  # left edges of what is computed
_COMPUTED = (1.02, 1.06, 1.04)
_NARROW = 0.82  # of a box beside the residual stream
SPINE = 6.46  # the residual stream's x
BUS = 3.08  # ln1 runs down here, to q, k and v

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    def overlaps(self, other: "Rect") -> bool:
        return self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom


def row_top(row: str) -> float:
    """The upper edge of a row's boxes."""
    gaps = (row in BLOCK_ROWS) + 2 * (row in ROWS[9:])
    return HEADER + ROWS.index(row) * PITCH + gaps * GAP


HEIGHT = row_top(ROWS[-1]) + BOX + 0.2
BLOCK = Rect(0.1, row_top("ln1") - 0.1, 6.58, row_top("down") - row_top("ln1") + BOX + 0.2)


def layout(parts: Iterable[Part]) -> dict[str, Rect]:
    """A rectangle for each part, by key."""
    parts = list(parts)
    return {part.key: _rect(part, [other for other in parts if other.row == part.row]) for part in parts}


def _rect(part: Part, row: list[Part]) -> Rect:
    y = row_top(part.row)
    if part.role is not style.PARAMETER:
        stream = part.key.startswith("resid") or part.column < 2
        return Rect(_COLUMNS[part.column], y, _COMPUTED[part.column] if stream else _NARROW, BOX)
    left, right = _WEIGHTS
    weights = [other for other in row if other.role is style.PARAMETER]
    if len(weights) == 1:
        return Rect(left, y, right - left, BOX)
    bias = weights[1].name.endswith(".bias")
    first = (right - left) * (0.645 if bias else 0.5) - 0.03
    return Rect(left, y, first, BOX) if part.column == 0 else Rect(left + first + 0.06, y, right - left - first - 0.06, BOX)


def arrows(at: dict[str, Rect]) -> list[list[Point]]:
    """Lines from box to box; each ends in an arrow head."""
    lines = []
    for row in ROWS:  # a row's parameters act on its first computed box
        target = next((rect for key, rect in at.items() if rect.y == row_top(row) and rect.x == _COLUMNS[0]), None)
        if target:
            lines.append([(_WEIGHTS[1], target.middle), (target.x, target.middle)])
    if "pos_embed" in at:
        lines.append(_hop(at["wpe"], at["pos_embed"]))
    if "mlp.pre_linear" in at:
        lines.append(_hop(at["mlp.pre"], at["mlp.post"]))
        lines.append(_under(at["mlp.post"], at["mlp_out"]))
    else:
        lines += [_across(at["mlp.pre"], at["mlp.post"]), _across(at["mlp.post"], at["mlp_out"])]
    for first, second in _ACROSS:
        if first in at and second in at:
            lines.append(_across(at[first], at[second]))
    for first, second in _DOWN:
        if first in at and second in at:
            a, b = at[first], at[second]
            x = max(a.x, b.x) + 0.4
            lines.append([(x, a.bottom), (x, b.y)])
    return lines


_ACROSS = (
    ("resid_pre", "stats1"), ("stats1", "ln1"), ("resid_pre", "rms1"), ("rms1", "ln1"), ("q", "scores"), ("k", "scores"),
    ("scores", "totals"), ("totals", "pattern"), ("v", "z"), ("z", "attn_out"), ("attn_out", "resid_mid"),
    ("resid_mid", "stats2"), ("stats2", "ln2"), ("resid_mid", "rms2"), ("rms2", "ln2"), ("mlp.pre_linear", "mlp.post"),
    ("mlp_out", "resid_post"),
)  # fmt: skip
_DOWN = (("scores", "pattern"), ("pattern", "z"), ("ln2", "mlp.pre"), ("ln_final", "logits"))


def _across(a: Rect, b: Rect) -> list[Point]:
    """From the side of one box to the near side of another: straight in a row, slanted between rows."""
    lean = 0.0 if a.y == b.y else 0.12 if a.y < b.y else -0.12
    start, end = a.middle + lean, b.middle - lean
    return [(a.right, start), (b.x, end)] if a.x < b.x else [(a.x, start), (b.right, end)]


def _hop(a: Rect, b: Rect) -> list[Point]:
    """Over the box in between."""
    start, end, y = a.right - 0.2, b.x + 0.4, a.y - 0.06
    return [(start, a.y), (start, y), (end, y), (end, b.y)]


def _under(a: Rect, b: Rect) -> list[Point]:
    """Below the box in between, to the next row."""
    y = (a.bottom + b.y) / 2
    return [(a.x + 0.2, a.bottom), (a.x + 0.2, y), (b.right - 0.3, y), (b.right - 0.3, b.y)]


def bus(at: dict[str, Rect]) -> list[Point]:
    """From ln1 down to where q, k and v take it."""
    return [(at["ln1"].x, at["ln1"].bottom - 0.08), (BUS, at["ln1"].bottom - 0.08), (BUS, at["v"].middle)]


def stream(at: dict[str, Rect]) -> list[list[Point]]:
    """The residual stream: from the embedding to the last norm, in straight pieces between its boxes."""
    entry = at["pos_embed"] if "pos_embed" in at else at["embed"]
    stops = [at["resid_pre"], at["resid_mid"], at["resid_post"]]
    last = at["ln_final"]
    pieces = [[(entry.right, entry.middle), (SPINE, entry.middle), (SPINE, stops[0].y)]]
    pieces += [[(SPINE, a.bottom), (SPINE, b.y)] for a, b in itertools.pairwise(stops)]
    return [*pieces, [(SPINE, stops[-1].bottom), (SPINE, last.middle), (last.right, last.middle)]]

"""The page of the lab: HTML without script that shows what was measured beside what was predicted.

Colours and tone are those of trainyard's own report (cli/report/assets/report.css).
"""

import collections
import math
import re
import statistics
from html import escape

from scenarios import SETS

MOST_RANKS = 8     # measured ranks of a picture
MOST_BOXES = 700   # of a picture; where there are more, longer ones are merged
OPEN_PICTURES = 3

KINDS = {  # kind: (class, name in the legend); the colour is --k-KIND
    "forward": ("f", "forward"), "backward": ("b", "backward"), "recompute": ("r", "recomputation"),
    "optimizer": ("o", "optimizer, server's update"), "other": ("x", "other compute"), "data": ("d", "data parallel"),
    "tensor": ("t", "tensor parallel"), "context": ("c", "context parallel"), "expert": ("e", "expert parallel"),
    "pipeline": ("p", "messages between stages"), "host_copy": ("h", "copies to and from the host"),
    "elsewhere": ("z", "other communication"),
}
PASSES = (("recompute", "recompute"), ("forward", "forward"), ("backward", "backward"), ("gradient", "backward"),
          ("optimizer", "optimizer"), ("update", "optimizer"))
LANES = {"data": "data", "gather": "data", "across": "data", "shard": "data", "agreement": "data", "tensor": "tensor",
         "context": "context", "expert": "expert", "send": "pipeline", "receive": "pipeline", "pipeline": "pipeline",
         "copy": "host_copy", "NVMe": "host_copy"}

STYLE = """
:root {
  --page: #f6f7f9; --panel: #ffffff; --ink: #16222e; --quiet: #5b6875; --line: #dfe4ea; --accent: #1d5fa8;
  --goodback: #e3f4e9; --bad: #b3261e; --shadow: 0 1px 2px rgba(20, 40, 60, .07), 0 2px 8px rgba(20, 40, 60, .05);
  --k-forward: #2f6db3; --k-backward: #8fd19e; --k-recompute: #4f8f9d; --k-optimizer: #7351a8; --k-other: #8c98a4;
  --k-data: #c2407e; --k-tensor: #e8912d; --k-context: #2fa6a0; --k-expert: #7fa32a; --k-pipeline: #d3b93c;
  --k-host_copy: #b0563c; --k-elsewhere: #5f6f7e; --tone: 48%;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --page: #0f151b; --panel: #18212a; --ink: #e6ecf2; --quiet: #9aa8b5; --line: #2c3844; --accent: #6fb1f2;
  --goodback: #15352a; --bad: #ff8a80; --shadow: none; --k-forward: #3f7fc8; --tone: 62%;
} }
* { box-sizing: border-box; } html { scroll-padding-top: 56px; }
body, svg { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
body { margin: 0; background: var(--page); color: var(--ink); }
.wide { max-width: 1340px; margin: 0 auto; padding: 0 24px; }
.top { padding: 26px 0 14px; } section { padding: 26px 0 6px; }
.brand { margin: 0; font-weight: 700; letter-spacing: .02em; color: var(--accent); }
h1 { margin: 2px 0 4px; font-size: 28px; line-height: 1.25; } h2 { margin: 0 0 10px; font-size: 21px; }
h3 { margin: 0 0 6px; font-size: 15px; } p { margin: 0 0 10px; }
.quiet, small, caption, figcaption, footer { color: var(--quiet); }
nav { position: sticky; top: 0; z-index: 5; background: var(--page); border-bottom: 1px solid var(--line); }
nav ul, .legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; font-size: 14px; }
nav .wide { padding-top: 9px; padding-bottom: 9px; } footer.wide { font-size: 13px; padding: 24px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.panel, .card { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; }
.panel, .card { padding: 16px 18px; box-shadow: var(--shadow); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(196px, 100%), 1fr)); gap: 16px; }
.card { display: flex; flex-direction: column; min-width: 0; font-variant-numeric: tabular-nums; }
.big { font-size: 30px; font-weight: 650; line-height: 1.15; margin: 6px 0 8px; }
.big small { display: block; font-size: 13px; font-weight: 400; } .card dl { margin: auto 0 0; font-size: 14px; }
.fact { display: flex; justify-content: space-between; gap: 10px; border-top: 1px solid var(--line); padding: 4px 0; }
.fact dt { color: var(--quiet); } .fact dd { margin: 0; text-align: right; }
.fact small { display: block; overflow-wrap: anywhere; }
.two { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 10px 36px; align-items: center; }
svg { display: block; width: 100%; height: auto; font-size: 12px; } .scatter { max-width: 760px; }
.grid { stroke: var(--line); } .tenth { fill: var(--goodback); } .equal { stroke: var(--quiet); stroke-width: 1.2; }
.aside { stroke: var(--quiet); stroke-width: .8; stroke-dasharray: 4 3; }
.point { stroke: var(--panel); stroke-width: .8; fill-opacity: .85; }
.tick { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
.word { fill: var(--ink); } .of-predicted { fill: var(--accent); } .middle { text-anchor: middle; }
.swatch { display: inline-block; width: 14px; height: 14px; border-radius: 3px; vertical-align: -2px; }
.legend { padding: 0; margin: 0 0 10px; font-size: 13px; } .legend .swatch, th .swatch { margin-right: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; background: var(--panel); width: 100%; }
.rows { border: 1px solid var(--line); } .wider { min-width: 1180px; } tbody th { white-space: nowrap; }
caption { text-align: left; padding: 0 0 8px; font-size: 15px; }
th, td { padding: 5px 12px; border-bottom: 1px solid var(--line); text-align: left; font-weight: 400; }
thead th { font-weight: 650; white-space: nowrap; border-bottom-width: 2px; }
.set th { font-weight: 650; background: var(--page); padding-top: 12px; }
.set small { font-weight: 400; font-size: 13px; margin-left: 10px; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.side { width: 140px; min-width: 120px; } .side b { float: right; font-weight: 400; }
thead .side { color: var(--quiet); font-weight: 400; font-size: 12px; }
.bar { position: relative; display: block; height: 11px; border: solid var(--line); border-width: 0 1px; }
.bar::before { content: ""; position: absolute; left: 50%; inset-block: -4px; border-left: 1px solid var(--quiet); }
.bar i { position: absolute; inset-block: 0; background: var(--accent); } .bar .far { background: var(--bad); }
.panel.times { margin: 0 0 8px; padding: 9px 18px; } .lanes { min-width: 860px; }
summary { cursor: pointer; font-size: 14px; } summary b { color: var(--accent); font-weight: 650; margin-right: 6px; }
summary .number { float: right; color: var(--quiet); }
.number i { display: inline-block; min-width: 5.6em; color: var(--ink); font-style: normal; }
figure { margin: 12px 0 6px; } figcaption { font-size: 13px; margin-top: 6px; }
.ground { fill: var(--accent); fill-opacity: .08; } .w { fill-opacity: .32; } .end { text-anchor: end; }
.over { stroke: var(--ink); stroke-width: 1.5; }
KINDS@media (max-width: 900px) {
  .two { grid-template-columns: minmax(0, 1fr); } .wide { padding: 0 12px; }
  summary .number { float: none; display: block; text-align: left; }
}
@page { size: A4 landscape; margin: 12mm; }
@media print {
  :root { --page: #fff; --shadow: none; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body, caption { font-size: 11px; } table, summary, .set small { font-size: 10px; } th, td { padding: 2px 6px; }
  nav, footer { display: none; } .wide { max-width: none; padding: 0; } .wider, .lanes { min-width: 0; }
  .card, .two, tr, details { break-inside: avoid; } .scroll { overflow: visible; } .scatter { max-width: 520px; }
}
""".replace("KINDS", "".join(f".{short} {{ fill: var(--k-{kind}); background: var(--k-{kind}); }}\n"
                             for kind, (short, _) in KINDS.items()))


def _percent(share, sign=False):
    text = f"{abs(share) * 100:.1f} %"
    if not sign or text == "0.0 %":
        return text
    return ("+" if share > 0 else "\u2212") + text


def _plural(count, word):
    return f"{count} {word}{'' if count == 1 else 's'}"


def _value(quantity, *values):
    """Values as a person reads them, in the unit of the largest."""
    factor, digits, unit = 1, 2, " /s" if quantity.endswith("/s") else ""
    if quantity == "s":
        most = max(values)
        factor, digits, unit = (1, 2, " s") if most >= 10 else (1e3, 1 if most >= 0.01 else 2, " ms")
    return " .. ".join(f"{value * factor:.{digits}f}" for value in values) + unit


def _number(value):
    """A coordinate, to a tenth."""
    return f"{value:.1f}".replace(".0", "") if abs(value) >= 0.05 else "0"


def _line(name, x1, y1, x2, y2):
    return (f'<line class="{name}" x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" '
            f'y2="{_number(y2)}"/>')


def _text(name, x, y, words):
    return f'<text class="{name}" x="{_number(x)}" y="{_number(y)}">{escape(words)}</text>'


def _head(titles):
    """The head of a table of (title, class)."""
    cells = "".join(f'<th scope="col" class="{name}">{title}</th>' for title, name in titles)
    return f"<thead><tr>{cells}</tr></thead>"


def _title(words):
    """As a heading begins."""
    return escape(words[:1].upper() + words[1:])


def _cards(summaries):
    cards = []
    for title, found in summaries.items():
        facts = (("Rows", str(found["rows"])), ("Median", _percent(found["median"])),
                 ("Largest", f"{_percent(found['worst'])}<small>{escape(found['worst_name'])}</small>"))
        cards.append(f'<article class="card"><h3>{_title(title)}</h3>'
                     f'<div class="big">{_percent(found["mape"])}<small>mean absolute error</small></div><dl>'
                     + "".join(f'<div class="fact"><dt>{name}</dt><dd>{text}</dd></div>' for name, text in facts)
                     + "</dl></article>")
    return f'<section id="summary"><h2>Summary</h2><div class="cards">{"".join(cards)}</div></section>'


# Of the scatter plot, in its own units.
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 560, 64, 14, 12, 48
_SHAPES = ([(math.sin(i * math.pi / 8), math.cos(i * math.pi / 8)) for i in range(16)],
           ((-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)), ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
           ((0, -1.2), (1.2, .9), (-1.2, .9)))


def _mark(index, x, y, size, title):
    """A point of a group: shape and colour both tell groups apart."""
    points = " ".join(f"{_number(x + dx * size)},{_number(y + dy * size)}" for dx, dy in _SHAPES[index % 4])
    return (f'<polygon class="point" style="fill:hsl({1375 * index // 10 % 360} 62% var(--tone))" points="{points}">'
            f"<title>{escape(title)}</title></polygon>")


def _log_ticks(low, high):
    """(power, label) of powers of ten, with 2 and 5 times them where they are few."""
    for power in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5) if high - low <= 2.5 else (1,):
            at = power + math.log10(digit)
            if low <= at <= high:
                yield at, f"{digit * 10.0 ** power:g} s" if power >= 0 else f"{digit * 10.0 ** (power + 3):g} ms"


def _scatter_svg(rows, groups):
    places = [[math.log10(max(value, 1e-9)) for value in (row.median, row.predicted)] for row in rows]
    least, most = min(map(min, places)), max(map(max, places))
    low = (least + most) / 2 - max((most - least) / 2 + 0.08, 0.4)
    high = least + most - low

    def x(power):
        return _LEFT + (power - low) / (high - low) * (_WIDE - _RIGHT - _LEFT)

    def y(power):
        return _HIGH - _BOTTOM - (power - low) / (high - low) * (_HIGH - _BOTTOM - _TOP)
    more, less = math.log10(1.1), math.log10(0.9)
    corners = ((low, low), (low, low + more), (high - more, high), (high, high), (high, high + less), (low - less, low))
    out = [f'<polygon class="tenth" points="{" ".join(f"{_number(x(a))},{_number(y(b))}" for a, b in corners)}"/>']
    for at, label in _log_ticks(low, high):
        out += [_line("grid", x(at), y(low), x(at), y(high)), _text("tick middle", x(at), y(low) + 17, label),
                _line("grid", x(low), y(at), x(high), y(at)), _text("tick end", x(low) - 8, y(at) + 4, label)]
    out += [_line("equal", x(low), y(low), x(high), y(high)),
            _line("aside", x(low), y(low + more), x(high - more), y(high)),
            _line("aside", x(low - less), y(low), x(high), y(high + less)),
            _text("tick end", x(high - more) - 12, _TOP + 12, "+10 %"),
            _text("tick end", x(high) - 4, y(high + less) + 46, "\u221210 %")]
    for row, place in zip(rows, places):
        out.append(_mark(groups.index(row.experiment.group), x(place[0]), y(place[1]), 4,
                         f"{row.experiment.name}: measured {_value('s', row.median)}, predicted "
                         f"{_value('s', row.predicted)} ({_percent(row.error, sign=True)})"))
    out += [_text("word middle", (_LEFT + _WIDE - _RIGHT) / 2, _HIGH - 8, "measured"),
            f'<g transform="translate(14 {(_TOP + _HIGH - _BOTTOM) // 2}) rotate(-90)">'
            f'{_text("word middle", 0, 0, "predicted")}</g>']
    return (f'<svg class="scatter" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="Time of a step: predicted '
            f'against measured, {_plural(len(rows), "experiment")}">{"".join(out)}</svg>')


def _scatter(rows):
    rows = [row for row in rows if row.experiment.quantity == "s"]
    if not rows:
        return ""
    groups = list(dict.fromkeys(row.experiment.group for row in rows))
    lines = []
    for index, group in enumerate(groups):
        errors = [abs(row.error) for row in rows if row.experiment.group == group]
        lines.append(f'<tr><th scope="row"><svg class="swatch" viewBox="0 0 14 14" role="img" aria-label="mark">'
                     f'{_mark(index, 7, 7, 5, group)}</svg>{escape(group)}</th><td class="number">{len(errors)}</td>'
                     f'<td class="number">{_percent(statistics.fmean(errors))}</td>'
                     f'<td class="number">{_percent(max(errors))}</td></tr>')
    head = _head((("Group", ""), ("Rows", "number"), ("Mean, absolute", "number"), ("Largest", "number")))
    return (f'<section id="scatter"><h2>Time of a step</h2><div class="panel two"><div>{_scatter_svg(rows, groups)}'
            '<p class="quiet">Shaded: a tenth to each side. A point names its experiment.</p></div>'
            f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div></div></section>')


def _table(rows, pictured):
    full = next((share for share in (0.05, 0.1, 0.2) if all(abs(row.error) <= share for row in rows)), 0.3)
    out = []
    for title in SETS:
        members = [(i, row) for i, row in enumerate(rows) if row.experiment.set == title]
        if not members:
            continue
        mean = statistics.fmean(abs(row.error) for _, row in members)
        out.append(f'<tbody><tr class="set"><th scope="rowgroup" colspan="9">{_title(title)}<small>'
                   f'{_plural(len(members), "row")}, mean absolute error {_percent(mean)}</small></th></tr>')
        for i, row in members:
            x, far = row.experiment, ' class="far"' if abs(row.error) > 0.1 else ""
            side = "left" if row.error >= 0 else "right"  # where the bar has its end in the middle
            name = f'<a href="#timeline-{i}">{escape(x.name)}</a>' if i in pictured else escape(x.name)
            numbers = (x.ranks, _value(x.quantity, row.median),
                       _value(x.quantity, min(row.measured), max(row.measured)) if len(row.measured) > 1 else "-",
                       _value(x.quantity, row.predicted), _percent(row.error, sign=True))
            out.append(f'<tr><th scope="row">{name}</th><td>{escape(x.what)}</td><td>{escape(x.topology)}</td>'
                       + "".join(f'<td class="number">{text}</td>' for text in numbers)
                       + f'<td class="side"><span class="bar" aria-hidden="true"><i{far} style="{side}:50%;'
                       f'width:{_number(min(abs(row.error) / full, 1) * 50)}%"></i></span></td></tr>')
        out.append("</tbody>")
    head = _head((("Experiment", ""), ("What", ""), ("Network", ""), ("Ranks", "number"), ("Measured", "number"),
                  ("Least .. most", "number"), ("Predicted", "number"), ("Error", "number"),
                  (f"\u2212{full * 100:.0f} %<b>+{full * 100:.0f} %</b>", "side")))
    return ('<section id="rows"><h2>All rows</h2><div class="scroll"><table class="rows wider"><caption>Measured is '
            "the median of the steps. A bar to the left: the prediction is too low; red: more than 10 % off.</caption>"
            f'{head}{"".join(out)}</table></div></section>')


Part = collections.namedtuple("Part", "begin moving end kind label")  # moving: when the wait is over
Track = collections.namedtuple("Track", "compute communication")


def _kind_of(lane, label):
    """(whether it is compute, kind) of a span or slice; the kind of a wait is None."""
    lane = lane.split(": ")[-1]
    if lane == "host optimizer":
        return True, "optimizer"
    if lane == "compute":
        found = [(label.find(word), kind) for word, kind in PASSES if word in label]
        return True, None if label.startswith("wait") else min(found)[1] if found else "other"
    return False, LANES.get(lane.split(" ")[0], "elsewhere")


def _moved(parts):
    """Predicted parts of a lane in order; what stands inside another says when that one's data move."""
    out = []
    for part in sorted(parts, key=lambda p: (p.begin, -p.end, p.label == "")):
        if out and part.end <= out[-1].end and part.begin > out[-1].begin:
            out[-1] = out[-1]._replace(moving=part.begin)
        else:
            out.append(part)
    # A receive of a pipeline is asked for long before: its wait is left blank.
    return [part._replace(begin=part.moving) if part.kind == "pipeline" else part for part in out]


def _track(entries, is_predicted):
    """The lanes of entries (lane, label, begin, end)."""
    compute, lanes = [], {}
    for lane, label, begin, end in entries:
        is_compute, kind = _kind_of(lane, label)
        if kind and end > begin:
            (compute if is_compute else lanes.setdefault(lane, [])).append(Part(begin, begin, end, kind, label))
    communication = [part for _, parts in sorted(lanes.items())
                     for part in (_moved(parts) if is_predicted else parts)]
    return Track(sorted(compute, key=lambda p: (p.begin, -p.end)),
                 sorted(communication, key=lambda p: (p.begin, p.end)))


def _paired(row):
    """([(label, track, whether it is predicted)], how many measured ranks are left out), a rank's two side by side.

    Where there is a parameter server, the lab's first ranks are servers, and the simulator counts workers alone.
    """
    measured, predicted, servers = {}, {}, row.experiment.servers
    for rank, label, kind, begin, end in row.spans:
        measured.setdefault(rank, []).append((kind, label, begin, end))
    for owner, lane, name, begin, end, _ in row.slices:
        predicted.setdefault(owner, []).append((lane, name, begin, end))
    measured = {rank: _track(measured[rank], False) for rank in sorted(measured)}
    owners, alone = {}, []
    for owner in sorted(predicted, key=lambda name: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)]):
        role, number = re.match(r"(rank|parameter server|) ?(\d*)", owner).groups()
        rank = int(number or 0) + (servers if role == "rank" else 0)
        is_found = rank in measured and (role == "rank" or role and rank < servers)
        (owners.setdefault(rank, []) if is_found else alone).append(owner)
    shown = sorted(sorted(measured, key=lambda rank: (rank not in owners, rank))[:MOST_RANKS])
    out = []
    for rank in shown:
        name = f"{'worker' if servers else 'rank'} {rank - servers}" if rank >= servers else \
            f"server {rank}" if servers > 1 else "server"
        out.append((f"{name} measured", measured[rank], False))
        out += [(f"{name} predicted", _track(predicted[owner], True), True) for owner in owners.get(rank, ())]
    for owner in alone:
        out.append((f"{owner.replace('parameter ', '')} predicted", _track(predicted[owner], True), True))
    return out, len(measured) - len(shown)


# Of a timeline, in its own units.
_LANES_WIDE, _LANES_LEFT, _LANES_RIGHT, _AXIS, _COMPUTE = 1240, 140, 24, 24, 13
_ROW_HEIGHTS = (7, 5, 4, 4, 3, 3)  # of communication, by how many rows it takes
_SMALL = 0.3                       # what is narrower is not seen


def _in_rows(parts, slack):
    """Parts that overlap by more than slack in rows one under the other."""
    rows = [[]]
    for part in parts:
        free = next((row for row in rows if not row or row[-1].end <= part.begin + slack), None)
        if free is None and len(rows) < len(_ROW_HEIGHTS) and part.end - part.begin > slack:
            rows.append([])
        (rows[-1] if free is None else free).append(part)
    return rows


def _boxes(parts, x, digits):
    """(left, right, class, title) of parts; a wait is a box of its own."""
    for part in parts:
        title = f"{part.label}: {part.begin * 1e3:.{digits}f} to {part.end * 1e3:.{digits}f} ms"
        name = KINDS[part.kind][0]
        if part.moving > part.begin:
            title += f", waits until {part.moving * 1e3:.{digits}f}"
            yield x(part.begin), x(part.moving), f"{name} w", title
        yield x(part.moving), x(part.end), name, title


def _merged(boxes, least):
    """Boxes of a row, those narrower than least made one with their like beside them."""
    out = []  # [left, right, class, title, width of what the title names, how many others]
    for left, right, name, title in boxes:
        width, last = right - left, out[-1] if out else None
        if last and last[2] == name and left - last[1] < least and min(width, last[4]) < least:
            last[1], last[5] = max(last[1], right), last[5] + 1
            if width > last[4]:
                last[3:5] = title, width
        else:
            out.append([left, right, name, title, width, 0])
    return [(left, right, name, title + (f", and {more} more" if more else ""))
            for left, right, name, title, _, more in out if right - left >= 0.05]


def _rectangles(boxes, top, height):
    out = []
    for left, right, name, title in boxes:
        width = right - left - 0.5 if right - left > 2 else max(right - left, _SMALL)  # neighbours stand apart
        out.append(f'<rect class="{name}" x="{_number(left)}" y="{top}" width="{_number(width)}" height="{height}">'
                   f"<title>{escape(title)}</title></rect>")
    return "".join(out)


def _lanes_svg(row, tracks, over):
    """The picture of a row's tracks; over: when the measured and when the predicted step ends."""
    end = max([*over, 1e-9] + [p.end for _, track, _ in tracks for p in track.compute + track.communication])
    digits = 1 if end >= 0.05 else 2 if end >= 0.005 else 3
    scale = (_LANES_WIDE - _LANES_LEFT - _LANES_RIGHT) / end

    def x(seconds):
        return _LANES_LEFT + seconds * scale
    lanes_of = [[track.compute] + _in_rows(track.communication, _SMALL / scale) for _, track, _ in tracks]
    drawn = [[list(_boxes(parts, x, digits)) for parts in lanes] for lanes in lanes_of]
    for least in (_SMALL, 1, 2, 4, 8):
        merged = [[_merged(boxes, least) for boxes in lanes] for lanes in drawn]
        if sum(len(boxes) for lanes in merged for boxes in lanes) <= MOST_BOXES:
            break
    out, top = [], _AXIS + 4
    for (label, _, is_predicted), lanes in zip(tracks, merged):
        each = _ROW_HEIGHTS[len(lanes) - 2]
        height = _COMPUTE + 1 + each * (len(lanes) - 1)
        if is_predicted:
            out.append(f'<rect class="ground" x="0" y="{top - 3}" width="{_LANES_WIDE}" height="{height + 6}"/>')
        out.append(_text("of-predicted" if is_predicted else "word", 8, top + 11, label))
        out.append(_rectangles(lanes[0], top, _COMPUTE))
        out += [_rectangles(boxes, top + _COMPUTE + 1 + each * i, each - (len(lanes) > 2))
                for i, boxes in enumerate(lanes[1:])]
        out.append(_line("over", x(over[is_predicted]), top - 1, x(over[is_predicted]), top + height + 1))
        top += height + 7
    step = 10.0 ** math.floor(math.log10(end / 5))
    step = next(step * factor for factor in (1, 2, 5, 10) if end / (step * factor) <= 10)
    ticks = [(i * step, f"{i * step * 1e3:g} ms" if i else "0") for i in range(int(end / step + 1e-9) + 1)]
    axis = "".join(_line("grid", x(at), _AXIS - 4, x(at), top - 4) + _text("tick middle", x(at), _AXIS - 9, label)
                   for at, label in ticks)
    many = sum(is_predicted for _, _, is_predicted in tracks)
    label = f"timelines of {_plural(len(tracks) - many, 'measured rank')} and {_plural(many, 'predicted rank')}"
    return (f'<svg class="lanes" viewBox="0 0 {_LANES_WIDE} {top}" role="img" '
            f'aria-label="{escape(row.experiment.name)}: {label}">{axis}{"".join(out)}</svg>')


def _picture(number, row, is_open):
    """(HTML, kinds that are drawn) of a row's timelines."""
    tracks, left_out = _paired(row)
    over = max(span[4] for span in row.spans), row.predicted
    measured, predicted = ({p.kind for _, track, is_predicted in tracks for p in track.compute + track.communication
                            if is_predicted == wanted} for wanted in (False, True))
    words = [f"Measured is the last step, {_value('s', over[0])}."]
    if left_out:
        words.append(f"{left_out} of {len({span[0] for span in row.spans})} measured ranks are left out.")
    if "pipeline" in predicted - measured:
        words.append("Ranks do not record when messages between stages move.")
    name, what = escape(row.experiment.name), escape(row.experiment.what)
    return (f'<details class="panel times"{" open" if is_open else ""}><summary><b>{name}</b> {what} '
            f'<span class="number">measured <i>{_value("s", row.median)}</i>, predicted '
            f'<i>{_value("s", row.predicted)}</i><i>{_percent(row.error, sign=True)}</i></span></summary>'
            f'<figure id="timeline-{number}"><div class="scroll">{_lanes_svg(row, tracks, over)}</div>'
            f'<figcaption>{" ".join(words)}</figcaption></figure></details>', measured | predicted)


def _timelines(rows, pictured):
    if not pictured:
        return ""
    pictures = [_picture(i, rows[i], place < OPEN_PICTURES) for place, i in enumerate(pictured)]
    used = set().union(*(kinds for _, kinds in pictures))
    legend = "".join(f'<li><span class="swatch {short}"></span>{name}</li>'
                     for kind, (short, name) in KINDS.items() if kind in used)
    return ('<section id="timelines"><h2>Timelines</h2><p class="quiet">A lane of compute, and below it a thinner one '
            "of communication, from when it is asked for until it is done, pale while it is known to wait.<br>Blank is "
            "waiting; a dark line is the end of the step. Predicted lanes have a blue ground; ranks without one do the "
            f'same work as one that has it.</p><ul class="legend">{legend}</ul>'
            + "".join(text for text, _ in pictures) + "</section>")


def _skipped(skipped):
    content = '<p class="quiet">No experiment was skipped.</p>'
    if skipped:
        lines = "".join(f'<tr><th scope="row">{escape(found["name"])}</th><td>{escape(found["why"])}</td></tr>'
                        for found in skipped)
        head = _head((("Experiment", ""), ("Why", "")))
        content = f'<div class="scroll"><table class="rows">{head}<tbody>{lines}</tbody></table></div>'
    return f'<section id="skipped"><h2>Not measured</h2>{content}</section>'


def page(rows, results):
    """The whole page as text: rows with what was measured and predicted, and results as results.json holds them."""
    facts = results["facts"]
    line = [str(facts["date"]), _plural(facts["cores"], "core"), f"Linux {facts['kernel']}"]
    if facts.get("scheduling"):
        line.append(f"scheduling: {facts['scheduling']}")
    pictured = [i for i, row in enumerate(rows) if row.spans and row.slices and row.experiment.quantity == "s"]
    parts = (("summary", "Summary", _cards(results["summaries"])), ("scatter", "Time of a step", _scatter(rows)),
             ("rows", "All rows", _table(rows, pictured)), ("timelines", "Timelines", _timelines(rows, pictured)),
             ("skipped", "Not measured", _skipped(results["skipped"])))
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, text in parts if text)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="trainyard">
<title>The lab: measured and predicted</title><style>{STYLE}</style></head><body>
<header class="top"><div class="wide"><p class="brand">trainyard</p><h1>The lab: measured and predicted</h1>
<p class="quiet">{escape(", ".join(line))}. Errors are predicted / measured \u2212 1.</p></div></header>
<nav aria-label="Parts of the page"><ul class="wide">{links}</ul></nav>
<main class="wide">{"".join(text for _, _, text in parts)}</main>
<footer class="wide">Written by trainyard. Nothing on this page is loaded from or sent to a network.</footer>
</body></html>
"""

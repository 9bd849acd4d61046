// What lies above the lanes: labels, axis, arrows from send to receive, selection and pointer.

function paintHeader(row) {
  const g = paint2d, y = row.y - timeline.scroll, {v} = row;
  if (row.type === "empty") {
    g.fillStyle = theme.quiet;
    g.fillText("no lanes were recorded", GUTTER + 6, y + row.height / 2);
    return;
  }
  const x = xOf(v.timeline.end_ps);
  if (!v.lanes.length || x < GUTTER || x > GUTTER + plotWidth() + 1) return;
  const last = timeline.rows.filter((r) => r.v === v).pop();
  const runs = v.report.step_time_s !== null;
  g.strokeStyle = runs ? theme.accent : theme.bad;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(x, y + row.height - 4);
  g.lineTo(x, last.y + last.height - timeline.scroll);
  g.stroke();
  g.fillStyle = runs ? theme.accent : theme.bad;
  const text = (runs ? "" : v.report.status === "deadlock" ? "stops at " : "if it fitted: ") + psText(v.timeline.end_ps);
  const width = textWidth(text);
  g.fillText(text, Math.min(x - width / 2, timeline.width - width - 6), y + row.height - 11);
}

// From the end of a send to the end of its receive, for the selected or hovered transfer.
function paintFlows() {
  const hit = timeline.selected || timeline.hover;
  if (!hit) return;
  const slices = hit.slice !== null ? [[hit.lane, hit.slice]] : [];
  for (const [lane, slice] of slices) {
    const ends = lane.flow[slice] ? lane.v.flows.get(lane.flow[slice]) || [] : [];
    const rows = ends.map(([l]) => timeline.rows.find((r) => r.lane === l));
    if (ends.length < 2 || !rows[0] || !rows[1]) continue;
    const point = (k) => [xOf((ends[k][0].active[ends[k][1]] + ends[k][0].end[ends[k][1]]) / 2),
                          rows[k].y - timeline.scroll + rows[k].height / 2];
    const from = ends[0][0].stream.startsWith("receive") ? 1 : 0;
    arrow(point(from), point(1 - from));
  }
}

function arrow([x0, y0], [x1, y1]) {
  const g = paint2d, angle = Math.atan2(y1 - y0, x1 - x0);
  g.strokeStyle = g.fillStyle = theme.ink;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x1 - 8 * Math.cos(angle - 0.4), y1 - 8 * Math.sin(angle - 0.4));
  g.lineTo(x1 - 8 * Math.cos(angle + 0.4), y1 - 8 * Math.sin(angle + 0.4));
  g.fill();
}

function outline(hit, colour, width) {
  const row = hit && timeline.rows.find((r) => r.lane === hit.lane);
  if (!row) return;
  const {lane} = hit, box = laneBox(row);
  const begin = hit.slice === null ? lane.blocks.begin[hit.block] : lane.begin[hit.slice];
  const end = hit.slice === null ? lane.blocks.end[hit.block] : lane.end[hit.slice];
  const x0 = Math.max(GUTTER, xOf(begin)), x1 = Math.min(GUTTER + plotWidth(), xOf(end));
  if (x1 < GUTTER || x0 > GUTTER + plotWidth()) return;
  paint2d.strokeStyle = colour;
  paint2d.lineWidth = width;
  paint2d.strokeRect(x0 - 0.5, box.y - 0.5, Math.max(2, x1 - x0 + 1), box.height + 1);
}

// Labels at the left, the axis, the selection and the pointer lie above the lanes.
function paintOverlay(ticks) {
  const g = paint2d;
  outline(timeline.hover, theme.ink, 1);
  outline(timeline.selected, theme.ink, 2.5);
  g.fillStyle = theme.panel;
  g.fillRect(0, 0, GUTTER - 1, timeline.viewport);
  g.fillRect(0, 0, timeline.width, AXIS - 4);
  paintGutter();
  g.fillStyle = theme.quiet;
  for (const t of ticks.at) {
    const text = ticks.text(t), x = Math.round(xOf(t));
    if (x + textWidth(text) / 2 < timeline.width && x >= GUTTER) g.fillText(text, x - textWidth(text) / 2, 11);
  }
  if (timeline.pointer !== null && timeline.pointer > GUTTER) {
    g.strokeStyle = theme.quiet;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(Math.round(timeline.pointer) + 0.5, AXIS - 4);
    g.lineTo(Math.round(timeline.pointer) + 0.5, timeline.viewport);
    g.stroke();
  }
  if (timeline.band) {
    const [a, b] = timeline.band;
    g.fillStyle = theme.accent;
    g.globalAlpha = 0.18;
    g.fillRect(Math.min(a, b), AXIS - 4, Math.abs(b - a), timeline.viewport);
    g.globalAlpha = 1;
    const text = psText(Math.abs(timeAt(b) - timeAt(a)));
    g.fillStyle = theme.accent;
    g.fillText(text, (a + b) / 2 - textWidth(text) / 2, AXIS + 6);
  }
}

function paintGutter() {
  const g = paint2d;
  for (const row of timeline.rows) {
    const y = row.y - timeline.scroll;
    if (y + row.height < AXIS || y > timeline.viewport) continue;
    const middle = y + row.height / 2;
    g.save();
    g.beginPath();
    g.rect(0, AXIS - 4, row.type === "variant" ? timeline.width : GUTTER - 6, timeline.viewport);
    g.clip();
    if (row.type === "variant") {
      const fails = row.v.report.step_time_s === null;
      g.font = "600 12px system-ui, sans-serif";
      g.fillStyle = fails ? theme.bad : theme.ink;
      const arrowhead = timeline.closed.has(row.v.index) ? "\u25b8 " : "\u25be ";
      g.fillText(arrowhead + row.v.label + (fails ? " (does not run)" : ""), 4, y + row.height - 11);
      g.font = "11px system-ui, sans-serif";
    } else if (row.type === "lane") {
      g.fillStyle = row.head ? theme.ink : theme.quiet;
      const open = timeline.open.has(rankKey(row.v, row.lane.rank));
      const mark = row.head && row.rest ? (open ? "\u25be" : "\u25b8") : "";
      if (mark) g.fillText(mark, 8, middle);
      g.fillText(row.head ? row.lane.role || `rank ${row.lane.rank}` : row.lane.stream,
                 row.head ? 20 : 30, middle);
      if (row.head && !row.lane.role) {
        g.fillStyle = theme.quiet;
        const stage = `stage ${row.lane.stage}`;
        g.fillText(stage, GUTTER - 12 - textWidth(stage), middle);
      }
    }
    g.restore();
  }
}

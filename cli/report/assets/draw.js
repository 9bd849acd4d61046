// Painting the timeline. For every lane the exact share of each pixel column that each kind covers is added
// up and blended, so a stall of a nanosecond is as visible at full zoom-out as its length deserves.

// Colours of a lane's pixels: three shades by chunk for the passes, one for every other kind.
const SHADES = 3, CHANNELS = 2 * SHADES + 8, WAITING = CHANNELS - 2, DIMMED = CHANNELS - 1;
const channelOf = (kind, chunk) => kind === FORWARD ? chunk % SHADES :
    kind === BACKWARD ? SHADES + chunk % SHADES : kind + 2 * SHADES - 2;
const channelNames = ["forward", "forward-2", "forward-3", "backward", "backward-2", "backward-3", "recompute",
                      "optimizer", "tensor", "data", "pipeline", "other", "waiting", "dimmed"];

let canvas, paint2d, strip, strip2d, theme, coverage = new Float32Array(0), pending = 0;

function readTheme() {
  const probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = channelNames.map((name) => {
    probe.fillStyle = cssColour("k-" + name);
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  });
  const pattern = (draw, size = 7) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = size * devicePixelRatio;
    const g = tile.getContext("2d");
    g.scale(devicePixelRatio, devicePixelRatio);
    draw(g, size);
    const made = paint2d.createPattern(tile, "repeat");
    made.setTransform(new DOMMatrix().scale(1 / devicePixelRatio));
    return made;
  };
  const stripes = (colour, width) => (g, n) => {
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.beginPath();
    for (const d of [-n, 0, n]) {
      g.moveTo(d - 1, n + 1);
      g.lineTo(d + n + 1, -1);
    }
    g.stroke();
  };
  theme = {rgb, ink: cssColour("ink"), quiet: cssColour("quiet"), line: cssColour("line"), page: cssColour("page"),
           panel: cssColour("panel"), accent: cssColour("accent"), bad: cssColour("bad"),
           idle: pattern(stripes(cssColour("hatch"), 1)),
           recompute: pattern(stripes("rgba(255,255,255,.45)", 2)),
           optimizer: pattern((g) => {
             g.fillStyle = "rgba(255,255,255,.6)";
             g.fillRect(1, 1, 1.6, 1.6);
             g.fillRect(4.5, 4.5, 1.6, 1.6);
           })};
}
// Text that can be read on a kind's colour.
const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 150 ? "#10202c" : "#ffffff";

function repaint() {
  if (canvas && !pending) pending = requestAnimationFrame(() => {
    pending = 0;
    paintTimeline();
  });
}

function paintTimeline() {
  const ratio = devicePixelRatio, g = paint2d;
  canvas.width = Math.round(timeline.width * ratio);
  canvas.height = Math.round(timeline.viewport * ratio);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.fillStyle = theme.panel;
  g.fillRect(0, 0, timeline.width, timeline.viewport);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  const top = timeline.scroll, bottom = top + timeline.viewport;
  const rows = timeline.rows.filter((row) => row.y < bottom && row.y + row.height > top);
  const ticks = axisTicks();
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  g.beginPath();
  for (const t of ticks.at) {
    const x = Math.round(xOf(t)) + 0.5;
    g.moveTo(x, AXIS - 5);
    g.lineTo(x, timeline.viewport);
  }
  g.stroke();
  paintStrips(rows.filter((row) => row.type === "lane"));
  for (const row of rows) {
    if (row.type === "lane") paintLane(row);
    else paintHeader(row);
  }
  paintFlows();
  paintOverlay(ticks);
}

// Round instants about 110 pixels apart.
function axisTicks() {
  const span = timeline.to - timeline.from;
  const rough = span / plotWidth() * 110;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
  const at = [];
  for (let t = Math.ceil(timeline.from / step) * step; t <= timeline.to; t += step) at.push(t);
  const unit = [[1e12, "s"], [1e9, "ms"], [1e6, "\u00b5s"], [1e3, "ns"]].find(([u]) => timeline.to >= u * 2 && step >= u / 1e3)
      || [1e3, "ns"];
  const places = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  return {at, text: (t) => (t / unit[0]).toFixed(places) + "\u00a0" + unit[1]};
}

// Adds what [from, to) covers of each device pixel column to `channel`.
function cover(from, to, channel, scale, columns) {
  let a = (from - timeline.from) * scale, b = (to - timeline.from) * scale;
  if (a < 0) a = 0;
  if (b > columns) b = columns;
  if (b <= a) return;
  const i = Math.floor(a), j = Math.min(Math.floor(b), columns - 1);
  if (i === j) {
    coverage[i * CHANNELS + channel] += b - a;
    return;
  }
  coverage[i * CHANNELS + channel] += i + 1 - a;
  for (let k = i + 1; k < j; ++k) coverage[k * CHANNELS + channel] += 1;
  coverage[j * CHANNELS + channel] += b - j;
}

function coverLane(lane, scale, columns) {
  const found = timeline.matching.get(lane);
  const first = firstAbove(lane.end, timeline.from);
  for (let i = first; i < lane.n && lane.begin[i] < timeline.to; ++i) {
    const kind = lane.kind[i];
    if (timeline.hidden.has(kind)) continue;
    const channel = found && !found[i] ? DIMMED : channelOf(kind, lane.chunk[i]);
    if (lane.active[i] > lane.begin[i]) cover(lane.begin[i], lane.active[i], WAITING, scale, columns);
    cover(lane.active[i], lane.end[i], channel, scale, columns);
  }
}

// One row of pixels per lane, all in one image; each is then stretched to its lane's height.
function paintStrips(rows) {
  if (!rows.length) return;
  const columns = Math.round(plotWidth() * devicePixelRatio);
  const image = strip2d.createImageData(columns, rows.length);
  if (coverage.length !== columns * CHANNELS) coverage = new Float32Array(columns * CHANNELS);
  const scale = columns / (timeline.to - timeline.from);
  rows.forEach((row, line) => {
    coverage.fill(0);
    coverLane(row.lane, scale, columns);
    for (let x = 0; x < columns; ++x) {
      let sum = 0, r = 0, g = 0, b = 0;
      for (let c = 0; c < CHANNELS; ++c) {
        const w = coverage[x * CHANNELS + c];
        if (w === 0) continue;
        const colour = theme.rgb[c];
        sum += w;
        r += w * colour[0];
        g += w * colour[1];
        b += w * colour[2];
      }
      if (sum <= 0) continue;
      const at = (line * columns + x) * 4;
      image.data[at] = r / sum;
      image.data[at + 1] = g / sum;
      image.data[at + 2] = b / sum;
      image.data[at + 3] = 255 * Math.min(1, sum);
    }
  });
  strip.width = columns;
  strip.height = rows.length;
  strip2d.putImageData(image, 0, 0);
  rows.forEach((row, line) => { row.line = line; });
}

const laneBox = (row) => {
  const pad = row.head ? 2 : 3;
  return {y: row.y - timeline.scroll + pad, height: row.height - 2 * pad};
};

function paintLane(row) {
  const g = paint2d, {lane} = row, box = laneBox(row);
  const end = lane.v.timeline.end_ps;
  const left = Math.max(GUTTER, xOf(0)), right = Math.min(GUTTER + plotWidth(), xOf(end));
  if (row.head && right > left) {
    g.fillStyle = theme.idle;
    g.fillRect(left, box.y, right - left, box.height);
  }
  g.save();
  g.beginPath();
  g.rect(GUTTER, AXIS, plotWidth(), timeline.viewport);
  g.clip();
  if (lane.v.report.step_time_s === null) g.globalAlpha = 0.6;
  if (row.head) paintUnderlays(lane, box);
  g.imageSmoothingEnabled = false;
  g.drawImage(strip, 0, row.line, strip.width, 1, GUTTER, box.y, plotWidth(), box.height);
  paintBlocks(lane, box);
  g.restore();
}

// A pass with small pauses inside still reads as one box until single kernels are told apart.
function paintUnderlays(lane, box) {
  const {blocks} = lane, g = paint2d;
  const alpha = g.globalAlpha;
  for (let b = firstAbove(blocks.end, timeline.from); b < blocks.n && blocks.begin[b] < timeline.to; ++b) {
    const i = blocks.first[b], kind = lane.kind[i];
    const x = xOf(blocks.begin[b]), width = xOf(blocks.end[b]) - x;
    if (width < 4 || i === blocks.last[b] || timeline.hidden.has(kind) || showsSlices(lane, b)) continue;
    const found = timeline.matching.get(lane);
    const channel = found && !found.subarray(i, blocks.last[b] + 1).includes(1) ? DIMMED : channelOf(kind, lane.chunk[i]);
    g.globalAlpha = alpha * 0.62;
    g.fillStyle = `rgb(${theme.rgb[channel].slice(0, 3).join(",")})`;
    g.fillRect(x, box.y, width, box.height);
  }
  g.globalAlpha = alpha;
}

function paintBlocks(lane, box) {
  const {blocks} = lane;
  let labels = 0;
  for (let b = firstAbove(blocks.end, timeline.from); b < blocks.n && blocks.begin[b] < timeline.to; ++b) {
    const kind = lane.kind[blocks.first[b]];
    const x = xOf(blocks.begin[b]), width = xOf(blocks.end[b]) - x;
    if (width < 4 || timeline.hidden.has(kind)) continue;
    const g = paint2d;
    if (kind === RECOMPUTE || kind === OPTIMIZER) {
      g.fillStyle = kind === RECOMPUTE ? theme.recompute : theme.optimizer;
      g.fillRect(x, box.y, width, box.height);
    }
    const detailed = blocks.last[b] > blocks.first[b] && showsSlices(lane, b);
    if (detailed) labels = paintSlices(lane, b, box, labels);
    g.fillStyle = theme.panel;
    g.fillRect(x - 0.5, box.y, 1, box.height);
    g.fillRect(x + width - 0.5, box.y, 1, box.height);
    if (!detailed && labels < 400 && width > 9) {
      ++labels;
      label(blockText(lane, b), Math.max(x, GUTTER), Math.min(x + width, GUTTER + plotWidth()), box, kind,
            lane.chunk[blocks.first[b]]);
    }
  }
}

function paintSlices(lane, block, box, labels) {
  const last = lane.blocks.last[block];
  const start = Math.max(lane.blocks.first[block], firstAbove(lane.end, timeline.from));
  for (let i = start; i <= last && lane.begin[i] < timeline.to; ++i) {
    const x = xOf(lane.begin[i]), width = xOf(lane.end[i]) - x;
    paint2d.fillStyle = theme.panel;
    paint2d.globalAlpha *= 0.55;
    paint2d.fillRect(x - 0.5, box.y, 1, box.height);
    paint2d.globalAlpha /= 0.55;
    if (width < 24 || ++labels > 400) continue;
    const text = lane.v.timeline.names[lane.name[i]];
    label((lane.microbatch[i] >= 0 ? lane.microbatch[i] + " \u00b7 " : "") + text, Math.max(x, GUTTER),
          Math.min(x + width, GUTTER + plotWidth()), box, lane.kind[i], lane.chunk[i]);
  }
  return labels;
}

// In a classic picture a box holds its micro-batch and nothing else.
function blockText(lane, block) {
  const i = lane.blocks.first[block];
  if (isKernel(lane.kind[i]) && lane.microbatch[i] >= 0) return String(lane.microbatch[i]);
  return lane.v.timeline.names[lane.name[i]];
}

const widths = new Map();
function textWidth(text) {
  if (!widths.has(text)) widths.set(text, paint2d.measureText(text).width);
  return widths.get(text);
}

// Centred where it fits, else cut; nothing where not even three characters fit.
function label(text, x0, x1, box, kind, chunk) {
  const room = x1 - x0 - 5;
  let width = textWidth(text);
  if (width > room) {
    const keep = Math.floor(text.length * room / width) - 1;
    if (keep < 3) return;
    text = text.slice(0, keep) + "\u2026";
    width = textWidth(text);
    if (width > room) return;
  }
  paint2d.fillStyle = inkOn(theme.rgb[channelOf(kind, chunk)]);
  paint2d.fillText(text, x0 + (x1 - x0 - width) / 2, box.y + box.height / 2 + 0.5);
}

function paintHeader(row) {
  const g = paint2d, y = row.y - timeline.scroll, {v} = row;
  if (row.type === "empty") {
    g.fillStyle = theme.quiet;
    g.fillText("no lanes were recorded", GUTTER + 6, y + row.height / 2);
    return;
  }
  const x = xOf(v.timeline.end_ps);
  if (x < GUTTER || x > GUTTER + plotWidth() + 1) return;
  const last = timeline.rows.filter((r) => r.v === v).pop();
  const runs = v.report.step_time_s !== null;
  g.strokeStyle = runs ? theme.accent : theme.bad;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(x, y + row.height - 4);
  g.lineTo(x, last.y + last.height - timeline.scroll);
  g.stroke();
  g.fillStyle = runs ? theme.accent : theme.bad;
  const text = (runs ? "" : "if it fitted: ") + psText(v.timeline.end_ps);
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
    const from = ends[0][0].stream === "receive" ? 1 : 0;
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
      g.fillText(row.head ? `rank ${row.lane.rank}` : streamTitles[row.lane.stream] || row.lane.stream,
                 row.head ? 20 : 30, middle);
      if (row.head) {
        g.fillStyle = theme.quiet;
        const stage = `stage ${row.lane.stage}`;
        g.fillText(stage, GUTTER - 12 - textWidth(stage), middle);
      }
    }
    g.restore();
  }
}

// Painting the timeline. For every lane the exact share of each pixel column that each kind covers is added
// up and blended, so a stall of a nanosecond is as visible at full zoom-out as its length deserves.

// Colours of a lane's pixels: three shades by chunk for the passes, one for every other kind.
const SHADES = 3;
const channelOf = (kind, chunk) => kind === FORWARD ? chunk % SHADES :
    kind === BACKWARD ? SHADES + chunk % SHADES : kind + 2 * SHADES - 2;
const channelNames = [...["forward", "backward"].flatMap((pass) => [pass, pass + "-2", pass + "-3"]),
                      ...kindNames.slice(2), "waiting", "dimmed"];
const CHANNELS = channelNames.length, WAITING = CHANNELS - 2, DIMMED = CHANNELS - 1;

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
           recompute: pattern(stripes("rgba(255,255,255,.3)", 2)),
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

// The colour of a slice, or of a block from its first to its last slice: grey if a search does not find it.
function channelAt(lane, first, last = first) {
  const found = timeline.matching.get(lane);
  if (found && !found.subarray(first, last + 1).includes(1)) return DIMMED;
  return channelOf(lane.kind[first], lane.chunk[first]);
}

function coverLane(lane, scale, columns) {
  const first = firstAbove(lane.end, timeline.from);
  for (let i = first; i < lane.n && lane.begin[i] < timeline.to; ++i) {
    const kind = lane.kind[i];
    if (timeline.hidden.has(kind)) continue;
    const channel = channelAt(lane, i);
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
      // Transfers are short and far apart; a root keeps them visible where they cover little of a pixel.
      image.data[at + 3] = 255 * (row.head ? Math.min(1, sum) : Math.sqrt(Math.min(1, sum)));
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
    g.globalAlpha = alpha * 0.62;
    g.fillStyle = `rgb(${theme.rgb[channelAt(lane, i, blocks.last[b])].slice(0, 3).join(",")})`;
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
    const channel = channelAt(lane, blocks.first[b], blocks.last[b]);
    if (channel !== DIMMED && (kind === RECOMPUTE || kind === OPTIMIZER)) {
      g.fillStyle = kind === RECOMPUTE ? theme.recompute : theme.optimizer;
      g.fillRect(x, box.y, width, box.height);
    }
    const detailed = blocks.last[b] > blocks.first[b] && showsSlices(lane, b);
    if (detailed) labels = paintSlices(lane, b, box, labels);
    g.fillStyle = theme.panel;
    g.fillRect(x - 0.5, box.y, 1, box.height);
    g.fillRect(x + width - 0.5, box.y, 1, box.height);
    if (!detailed && labels < 400 && width > 7) {
      ++labels;
      // A transfer is named where it moves, or else where it waits.
      const moves = Math.max(xOf(lane.active[blocks.first[b]]), x);
      const waits = moves > x && x + width - moves < 34;
      label(blockText(lane, b), Math.max(waits ? x : moves, GUTTER),
            Math.min(waits ? moves : x + width, GUTTER + plotWidth()), box, waits ? DIMMED : channel);
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
    label(longestThatFits(lane, i, width - 5), Math.max(x, GUTTER), Math.min(x + width, GUTTER + plotWidth()), box,
          channelAt(lane, i));
  }
  return labels;
}

// A kernel's name with its micro-batch, without, or in short ("L5 attention").
function longestThatFits(lane, i, room) {
  const name = lane.v.timeline.names[lane.name[i]];
  const short = name.replace(/^layer (\d+) /, "L$1 ");
  const all = lane.microbatch[i] >= 0 ? [`${lane.microbatch[i]} \u00b7 ${name}`, name, short] : [name, short];
  return all.find((text) => textWidth(text) <= room) || short;
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
function label(text, x0, x1, box, channel) {
  const room = x1 - x0 - (text.length < 4 ? 1 : 5);
  let width = textWidth(text);
  if (width > room) {
    const keep = Math.floor(text.length * room / width) - 1;
    if (keep < 3) return;
    text = text.slice(0, keep) + "\u2026";
    width = textWidth(text);
    if (width > room) return;
  }
  paint2d.fillStyle = channel === DIMMED ? theme.quiet : inkOn(theme.rgb[channel]);
  paint2d.fillText(text, x0 + (x1 - x0 - width) / 2, box.y + box.height / 2 + 0.5);
}

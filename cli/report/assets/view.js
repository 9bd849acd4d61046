// The timeline's state: which rows there are, which instants are seen, what is found and selected.

const kindTitles = {forward: "Forward", backward: "Backward", recompute: "Recomputation", optimizer: "Optimizer",
                    tensor: "Tensor parallel", context: "Context parallel", expert: "Expert parallel",
                    data: "Data parallel", pipeline: "Pipeline transfer", host_copy: "Host copy", input: "Input",
                    other: "Other"};
const kindNames = page.slice_kinds.map((k) => k.name);

const AXIS = 26, GUTTER = 168;

const timeline = {
  from: 0, to: 1, end: 1,      // ps; the view and the longest step
  rows: [], height: 0, scroll: 0,
  width: 800, viewport: 400,   // CSS pixels
  open: new Set(),             // ranks whose communication lanes are shown: "variant/rank"
  closed: new Set(),           // variants whose lanes are folded away
  hidden: new Set(),           // kinds that the legend has switched off
  query: "", matches: [], match: -1, matching: new Map(),
  hover: null, selected: null, pointer: null, band: null,
};

const rankKey = (v, rank) => v.index + "/" + rank;

// Rows from top to bottom: a header per variant, the compute lane of each rank, and, where opened, the
// rank's other lanes.
function layRows() {
  const rows = [];
  let y = AXIS;
  const add = (row, height) => {
    rows.push({...row, y, height});
    y += height;
  };
  const many = variants.reduce((n, v) => n + new Set(v.lanes.map((l) => l.rank)).size, 0) > 24;
  for (const v of variants) {
    add({type: "variant", v}, variants.length > 1 ? 30 : 22);
    if (timeline.closed.has(v.index)) continue;
    if (!v.lanes.length) add({type: "empty", v}, 24);
    let rank = null;
    for (const lane of v.lanes) {
      const head = lane.rank !== rank;
      rank = lane.rank;
      if (!head && !timeline.open.has(rankKey(v, rank))) continue;
      const rest = v.lanes.filter((l) => l.rank === rank).length - 1;
      add({type: "lane", v, lane, head, rest}, head ? (many ? 20 : 28) : 17);
    }
    y += 6;
  }
  timeline.rows = rows;
  timeline.height = y + 2;
}

const plotWidth = () => Math.max(50, timeline.width - GUTTER - 10);
const xOf = (t) => GUTTER + (t - timeline.from) / (timeline.to - timeline.from) * plotWidth();
const timeAt = (x) => timeline.from + (x - GUTTER) / plotWidth() * (timeline.to - timeline.from);

// Shows [from, to], kept inside the step with a little air on the right and not below 10 ns.
function setView(from, to) {
  const limit = timeline.end * 1.02;
  const span = Math.min(Math.max(to - from, 10e3), limit);
  from = Math.min(Math.max(from, 0), limit - span);
  timeline.from = from;
  timeline.to = from + span;
  repaint();
}
function zoom(factor, around = (timeline.from + timeline.to) / 2) {
  setView(around - (around - timeline.from) * factor, around + (timeline.to - around) * factor);
}
function pan(fraction) {
  const shift = (timeline.to - timeline.from) * fraction;
  setView(timeline.from + shift, timeline.to + shift);
}
const fitView = () => setView(0, timeline.end * 1.02);
// Where the page opens: one variant that takes many times as long as the others would leave them no width.
function firstEnd() {
  const ends = variants.map((v) => v.timeline.end_ps).sort((a, b) => a - b);
  const middle = ends[Math.floor((ends.length - 1) / 2)];
  return middle > 0 ? Math.max(...ends.filter((end) => end <= 3 * middle)) : timeline.end;
}

function rowAt(y) {
  const at = y + timeline.scroll;
  if (y < AXIS) return null;
  return timeline.rows.find((row) => at >= row.y && at < row.y + row.height) || null;
}

// Whether single kernels are told apart at this zoom: below, a block of a pass is one box.
function showsSlices(lane, block) {
  const {blocks} = lane;
  const count = blocks.last[block] - blocks.first[block] + 1;
  const pixels = (blocks.end[block] - blocks.begin[block]) / (timeline.to - timeline.from) * plotWidth();
  return count === 1 || pixels / count >= 44;
}

// The block or slice under a point, with a pixel of tolerance.
function hitAt(x, y) {
  const row = rowAt(y);
  if (!row || row.type !== "lane" || x < GUTTER) return null;
  const {lane} = row;
  const t = timeAt(x), slack = (timeline.to - timeline.from) / plotWidth();
  let block = firstAbove(lane.blocks.end, t);
  if (block >= lane.blocks.n || lane.blocks.begin[block] > t + slack) {
    if (block === 0 || lane.blocks.end[block - 1] < t - slack) return null;
    --block;
  }
  if (timeline.hidden.has(lane.kind[lane.blocks.first[block]])) return null;
  if (!showsSlices(lane, block)) return {lane, block, slice: null, row};
  const {first, last} = {first: lane.blocks.first[block], last: lane.blocks.last[block]};
  const slice = Math.min(Math.max(firstAbove(lane.end, t, last + 1), first), last);
  if (lane.begin[slice] > t + slack) return null;
  return {lane, block, slice, row};
}

// --- search -------------------------------------------------------------------------------------------

// "mb 3" finds micro-batch 3; anything else is looked for in names, kinds and streams.
function search(query) {
  timeline.query = query;
  timeline.matches = [];
  timeline.matching = new Map();
  timeline.match = -1;
  const wanted = query.trim().toLowerCase();
  if (wanted) {
    const microbatch = /^(?:mb|micro-?batch)[ :]*(\d+)$/.exec(wanted);
    for (const v of variants) {
      const names = v.timeline.names.map((n) => n.toLowerCase().includes(wanted));
      for (const lane of v.lanes) {
        const found = new Uint8Array(lane.n);
        const stream = lane.stream.toLowerCase().includes(wanted);
        for (let i = 0; i < lane.n; ++i) {
          const kind = kindNames[lane.kind[i]];
          if (microbatch ? lane.microbatch[i] === Number(microbatch[1])
                         : names[lane.name[i]] || stream || kind.includes(wanted)) {
            found[i] = 1;
            timeline.matches.push([lane, i]);
          }
        }
        timeline.matching.set(lane, found);
      }
    }
  }
  const count = document.getElementById("matches");
  if (count) count.textContent = !wanted ? "" : plural(timeline.matches.length, "match");
  repaint();
}

function goToMatch(step) {
  const n = timeline.matches.length;
  if (!n) return;
  timeline.match = ((timeline.match < 0 && step < 0 ? 0 : timeline.match) + step + n) % n;
  const [lane, slice] = timeline.matches[timeline.match];
  document.getElementById("matches").textContent = `${timeline.match + 1} of ${n}`;
  reveal(lane, slice);
}

// Selects a slice, opens its lane and brings it into view.
function reveal(lane, slice) {
  timeline.closed.delete(lane.v.index);
  if (!timeline.rows.some((row) => row.lane === lane)) {
    timeline.open.add(rankKey(lane.v, lane.rank));
    layRows();
    resizeTimeline();
  }
  const row = timeline.rows.find((r) => r.lane === lane);
  if (row.y - AXIS < timeline.scroll || row.y + row.height > timeline.scroll + timeline.viewport)
    scrollTimeline(row.y - timeline.viewport / 2);
  const span = timeline.to - timeline.from, mid = (lane.begin[slice] + lane.end[slice]) / 2;
  select({lane, slice, block: firstAbove(lane.blocks.first, slice) - 1});
  if (mid < timeline.from || mid > timeline.to || (lane.end[slice] - lane.begin[slice]) / span < 0.004) {
    const wide = Math.min(span, Math.max((lane.end[slice] - lane.begin[slice]) * 24, 10e3));
    setView(mid - wide / 2, mid + wide / 2);
  } else repaint();
}

function select(hit) {
  timeline.selected = hit;
  showDetail(hit);
  repaint();
}

// What tests and scripts may ask.
window.trainyard = {
  result,
  view: () => ({from: timeline.from, to: timeline.to}),
  matches: () => ({count: timeline.matches.length, current: timeline.match}),
  rows: () => timeline.rows.length,
  selected: () => timeline.selected && describeHit(timeline.selected),
};

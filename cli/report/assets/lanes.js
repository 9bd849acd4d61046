// From the packed columns to typed arrays. Times are picoseconds in doubles, exact below 2^53 ps (2.5 h).

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// LEB128. Shifts would cut at 32 bits, so the digits are multiplied.
class Numbers {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    return value;
  }
  fill(array, change = (x) => x) {
    for (let i = 0; i < array.length; ++i) array[i] = change(this.next());
    return array;
  }
  // Of runs: a value and how many have it.
  fillRuns(array, change = (x) => x) {
    for (let i = 0; i < array.length;) {
      const value = change(this.next()), end = i + this.next();
      array.fill(value, i, end);
      i = end;
    }
    return array;
  }
}

const FORWARD = 0, BACKWARD = 1, RECOMPUTE = 2, OPTIMIZER = 3;
const isKernel = (kind) => kind <= OPTIMIZER;

// Runs of slices of one pass of one micro-batch and chunk: what a classic picture draws as one box.
function blocksOf(lane) {
  const first = [], last = [];
  for (let i = 0; i < lane.n; ++i) {
    const same = i > 0 && isKernel(lane.kind[i]) && lane.kind[i] === lane.kind[i - 1] &&
        lane.microbatch[i] === lane.microbatch[i - 1] && lane.chunk[i] === lane.chunk[i - 1];
    if (same) last[last.length - 1] = i;
    else first.push(i), last.push(i);
  }
  return {n: first.length, first: Uint32Array.from(first), last: Uint32Array.from(last),
          begin: Float64Array.from(first, (i) => lane.begin[i]), end: Float64Array.from(last, (i) => lane.end[i])};
}

function readLane(numbers, meta, v) {
  const n = numbers.next();
  const lane = {...meta, v, n, begin: new Float64Array(n), end: new Float64Array(n)};
  numbers.fill(lane.begin);
  numbers.fill(lane.end);
  for (let i = 0, t = 0; i < n; ++i) {
    lane.begin[i] += t;
    t = lane.end[i] += lane.begin[i];
  }
  lane.active = numbers.fillRuns(new Float64Array(n));
  for (let i = 0; i < n; ++i) lane.active[i] += lane.begin[i];
  lane.name = numbers.fill(new Uint32Array(n));
  lane.kind = numbers.fillRuns(new Uint8Array(n));
  lane.microbatch = numbers.fillRuns(new Int32Array(n), (x) => x - 1);
  lane.chunk = numbers.fillRuns(new Int32Array(n));
  lane.bytes = numbers.fillRuns(new Float64Array(n));
  lane.peer = numbers.fillRuns(new Int32Array(n), (x) => x - 1);
  lane.flow = numbers.fillRuns(new Float64Array(n));
  lane.kernels = lane.stream === "compute" || (n > 0 && isKernel(lane.kind[0]));
  lane.blocks = blocksOf(lane);
  return lane;
}

function readCurve(numbers, meta) {
  const n = numbers.next();
  const at = numbers.fill(new Float64Array(n));
  for (let i = 1; i < n; ++i) at[i] += at[i - 1];
  const bytes = page.memory_categories.map(() => numbers.fill(new Float64Array(n)));
  const total = new Float64Array(n);
  for (const column of bytes) for (let i = 0; i < n; ++i) total[i] += column[i];
  return {...meta, n, at, bytes, total, peak: total.reduce((a, b) => Math.max(a, b), 0)};
}

// Adds `lanes` and `curves` to every variant.
async function readTimelines() {
  for (const v of variants) {
    const t = v.timeline;
    const numbers = new Numbers(await inflate(t.columns));
    v.lanes = t.lanes.map((meta) => readLane(numbers, meta, v));
    v.curves = t.memory.map((meta) => readCurve(numbers, meta));
    v.flows = new Map();
    for (const lane of v.lanes) for (let i = 0; i < lane.n; ++i) {
      if (!lane.flow[i]) continue;
      if (!v.flows.has(lane.flow[i])) v.flows.set(lane.flow[i], []);
      v.flows.get(lane.flow[i]).push([lane, i]);
    }
  }
}

// First index whose value is above (or, for `end`s, at or above) x, in ascending order.
function firstAbove(array, x, n = array.length) {
  let a = 0, b = n;
  while (a < b) {
    const m = (a + b) >> 1;
    if (array[m] <= x) a = m + 1;
    else b = m;
  }
  return a;
}

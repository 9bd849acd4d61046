// Mouse, keyboard, legend, search box, tooltip and the panel about the selected slice.

let frame, scroller, detail, dragging = null;

function describeHit({lane, block, slice}) {
  const v = lane.v;
  const one = slice !== null;
  const first = one ? slice : lane.blocks.first[block], last = one ? slice : lane.blocks.last[block];
  const begin = lane.begin[first], end = lane.end[last];
  let busy = 0;
  for (let i = first; i <= last; ++i) busy += lane.end[i] - lane.begin[i];
  const kind = kindTitles[kindNames[lane.kind[first]]] || kindNames[lane.kind[first]];
  const rows = [["Kind", kind]];
  if (lane.microbatch[first] >= 0) {
    rows.push(["Micro-batch", String(lane.microbatch[first])]);
    if (v.report.pipeline.chunks > 1) rows.push(["Chunk", String(lane.chunk[first])]);
  }
  rows.push(["Where", lane.role ? `${v.label}, ${lane.stream}`
    : `${v.label}, rank ${lane.rank}, stage ${lane.stage}, ${lane.stream}`]);
  rows.push(["Begin", psText(begin)], ["Duration", psText(end - begin)]);
  if (!one) rows.push(["Kernels", String(last - first + 1)],
                      ["Running", `${psText(busy)} (${percent(part(busy, end - begin))})`]);
  if (one && lane.active[slice] > begin)
    rows.push(["Waited first", psText(lane.active[slice] - begin)]);
  if (one && lane.bytes[slice] > 0) {
    rows.push(["Bytes", `${bytesText(lane.bytes[slice])} (${lane.bytes[slice].toLocaleString("en")} B)`]);
    const moving = end - lane.active[slice];
    if (moving > 0) rows.push(["Achieved", rateText(lane.bytes[slice] / (moving / 1e12)) + " of the buffer"]);
  }
  if (one && lane.peer[slice] >= 0) rows.push(["Peer", "rank " + lane.peer[slice]]);
  const name = one ? v.timeline.names[lane.name[slice]]
                   : lane.microbatch[first] >= 0 ? `${kind} of micro-batch ${lane.microbatch[first]}` : kind;
  return {name, begin, end, rows};
}

function showTip(hit, event) {
  const tip = document.getElementById("tip");
  tip.hidden = !hit;
  if (!hit) return;
  const {name, rows} = describeHit(hit);
  tip.replaceChildren(el("b", {}, name), el("dl", {}, rows.slice(0, 8).flatMap(
      ([k, value]) => [el("dt", {}, k), el("dd", {}, value)])));
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = (below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10) + "px";
}

function showDetail(hit) {
  if (!hit) {
    detail.replaceChildren(el("p", {class: "quiet"}, "Click a box for its details; hover for a summary. ",
                              "Zoom in to see single kernels."));
    return;
  }
  const {name, rows} = describeHit(hit);
  detail.replaceChildren(el("h3", {}, name), el("dl", {class: "facts"}, rows.map(
      ([k, value]) => el("div", {}, el("dt", {}, k), el("dd", {}, value)))));
}

function resizeTimeline() {
  timeline.width = frame.clientWidth;
  const most = Math.max(320, Math.floor(innerHeight * 0.9));
  timeline.viewport = Math.min(timeline.height, Math.max(most, 320));
  frame.style.height = timeline.viewport + "px";
  canvas.style.width = timeline.width + "px";
  canvas.style.height = timeline.viewport + "px";
  scroller.style.display = timeline.height > timeline.viewport ? "" : "none";
  scroller.firstChild.style.height = timeline.height + "px";
  timeline.scroll = Math.min(timeline.scroll, timeline.height - timeline.viewport);
  repaint();
}
function scrollTimeline(to) {
  timeline.scroll = Math.round(Math.min(Math.max(0, to), timeline.height - timeline.viewport));
  scroller.scrollTop = timeline.scroll;
  repaint();
}

function toggleRow(row) {
  if (row.type === "variant") toggle(timeline.closed, row.v.index);
  else if (row.type === "lane" && row.rest) toggle(timeline.open, rankKey(row.v, row.lane.rank));
  layRows();
  resizeTimeline();
}
function toggle(set, key) {
  if (!set.delete(key)) set.add(key);
}
function toggleCommunication() {
  const keys = variants.flatMap((v) => v.lanes.map((l) => rankKey(v, l.rank)));
  const all = keys.every((k) => timeline.open.has(k));
  timeline.open = all ? new Set() : new Set(keys);
  layRows();
  resizeTimeline();
}

const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

function listenToMouse() {
  frame.addEventListener("wheel", (event) => {
    // Without the focus the wheel belongs to the page, so that it does not get stuck here.
    const [x] = place(event);
    if (!event.ctrlKey && !event.metaKey && !frame.contains(document.activeElement)) return;
    event.preventDefault();
    if (x < GUTTER) scrollTimeline(timeline.scroll + event.deltaY);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
      pan((event.deltaX || event.deltaY) / 1000);
    else zoom(1.0018 ** event.deltaY, timeAt(x));
  }, {passive: false});
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    frame.focus({preventScroll: true});
    canvas.setPointerCapture(event.pointerId);
    dragging = {x, y, from: timeline.from, to: timeline.to, scroll: timeline.scroll, moved: false,
                selects: event.shiftKey || y < AXIS};
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    timeline.pointer = x;
    if (dragging) drag(x, y);
    else {
      timeline.hover = hitAt(x, y);
      canvas.style.cursor = timeline.hover || x < GUTTER ? "pointer" : y < AXIS ? "col-resize" : "grab";
      showTip(timeline.hover, event);
    }
    repaint();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const was = dragging;
    dragging = null;
    if (!was) return;
    if (timeline.band) {
      const [a, b] = timeline.band.map(timeAt);
      timeline.band = null;
      setView(Math.min(a, b), Math.max(a, b));
    } else if (!was.moved) {
      const row = rowAt(y);
      if (row && (x < GUTTER || row.type === "variant")) toggleRow(row);
      else select(hitAt(x, y));
    }
  });
  canvas.addEventListener("dblclick", () => timeline.selected && fitSelection());
  canvas.addEventListener("pointerleave", () => {
    timeline.pointer = timeline.hover = null;
    showTip(null);
    repaint();
  });
  scroller.addEventListener("scroll", () => {
    timeline.scroll = scroller.scrollTop;
    repaint();
  });
}

function drag(x, y) {
  if (Math.abs(x - dragging.x) + Math.abs(y - dragging.y) > 4) dragging.moved = true;
  if (!dragging.moved) return;
  showTip(null);
  if (dragging.selects) {
    timeline.band = [Math.max(GUTTER, dragging.x), Math.min(Math.max(GUTTER, x), GUTTER + plotWidth())];
    return;
  }
  const shift = (x - dragging.x) / plotWidth() * (dragging.to - dragging.from);
  setView(dragging.from - shift, dragging.to - shift);
  scrollTimeline(dragging.scroll - (y - dragging.y));
}

function fitSelection() {
  const {begin, end} = describeHit(timeline.selected);
  const air = (end - begin) * 0.1;
  setView(begin - air, end + air);
}

// The slice or block before or behind the selected one in its lane.
function step(by) {
  const hit = timeline.selected;
  if (!hit) {
    const row = timeline.rows.find((r) => r.type === "lane" && r.lane.n);
    if (row) reveal(row.lane, 0);
  } else if (hit.slice !== null) {
    const slice = hit.slice + by;
    if (slice >= 0 && slice < hit.lane.n) reveal(hit.lane, slice);
  } else {
    const block = hit.block + by;
    if (block >= 0 && block < hit.lane.blocks.n) select({...hit, block});
  }
}

const keys = {
  w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
  a: () => pan(-0.15), d: () => pan(0.15), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
  ArrowUp: () => scrollTimeline(timeline.scroll - 40), ArrowDown: () => scrollTimeline(timeline.scroll + 40),
  f: () => timeline.selected ? fitSelection() : fitView(), "0": fitView, Home: fitView,
  "/": () => document.getElementById("search").focus(), n: () => goToMatch(1), N: () => goToMatch(-1),
  c: toggleCommunication, ",": () => step(-1), ".": () => step(1),
  "?": () => { document.getElementById("keys").open = !document.getElementById("keys").open; },
  Escape: () => { select(null); frame.blur(); },
};
const keyTexts = [
  ["W S or + \u2212", "zoom in, out"], ["A D or \u2190 \u2192", "move left, right"],
  ["wheel", "zoom (after a click into the timeline, or with Ctrl)"], ["drag", "move"],
  ["Shift + drag, or drag on the axis", "zoom to a range"], ["f", "fit the selection, or the whole step"],
  ["0", "the whole step"], ["/", "search; Enter and Shift + Enter, or n and N: next and previous match"],
  ["c", "show or hide communication lanes"], [", .", "previous, next box of the lane"],
  ["?", "this list"], ["Esc", "clear the selection"]];

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    // Elsewhere on the page only the keys that do not scroll it are ours.
    const inside = frame.contains(event.target);
    if (!inside && !"/?".includes(event.key)) return;
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    if (!inside) frame.scrollIntoView({block: "nearest"});
    act();
  });
  const box = document.getElementById("search");
  box.addEventListener("input", () => search(box.value));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goToMatch(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    box.value = "";
    search("");
    frame.focus({preventScroll: true});
  });
}

function kindButtons() {
  const used = new Set(variants.flatMap((v) => v.lanes.flatMap((l) => [...new Set(l.kind)])));
  return el("div", {class: "kinds", role: "group", "aria-label": "Kinds shown"}, page.slice_kinds.map((kind, k) =>
      !used.has(k) ? null : el("button", {type: "button", "aria-pressed": "true", class: "kind", onclick: (event) => {
        toggle(timeline.hidden, k);
        event.currentTarget.setAttribute("aria-pressed", String(!timeline.hidden.has(k)));
        repaint();
      }}, el("span", {class: "swatch kind-" + kind.name}), kindTitles[kind.name] || kind.name)),
      el("span", {class: "kind still"}, el("span", {class: "swatch kind-idle"}), "Idle"));
}

// Puts the page together.

// Whose work is nowhere on the page.
function leftOutStages(v, names) {
  const t = v.timeline, shown = new Set(v.lanes.map((l) => l.rank)).size;
  if (shown === t.ranks_simulated) return "";
  const who = names ? `${v.label}: ` : "", stages = t.stages_left_out;
  const which = stages.length ? `, all of the pipeline's ${stages.length > 1 ? "stages" : "stage"} ${stages.join(", ")} among them` : "";
  return `${who}${plural(t.ranks_simulated - shown, "simulated rank")} left out${which}. `;
}

function leftOutNote() {
  const notes = variants.map((v) => {
    const t = v.timeline, shown = new Set(v.lanes.map((l) => l.rank)).size;
    if (shown === t.ranks_total && !t.slices_left_out) return "";
    return `${shown} of ${plural(t.ranks_total, "rank")} shown` +
        (t.slices_left_out ? `, ${t.slices_left_out.toLocaleString("en")} boxes left out to keep the page small` : "") +
        (t.until_ps < t.end_ps ? `, up to ${psText(t.until_ps)}` : "");
  });
  if (notes.every((note) => !note)) return null;
  const same = new Set(notes).size === 1;
  const rest = "Ranks that were not simulated do the same work as one that was.";
  if (!same && variants.length > 3)
    return folded("What of each variant is shown", el("ul", {}, variants.map((v, i) => notes[i] &&
        el("li", {}, `${v.label}: ${notes[i]}. `, leftOutStages(v, false)))), el("p", {class: "quiet"}, rest));
  const text = same ? (variants.length > 1 ? "Of each variant " : "") + notes[0] :
      variants.map((v, i) => notes[i] && `${v.label}: ${notes[i]}`).filter(Boolean).join(". ");
  return el("p", {class: "quiet"}, text, ". ", ...variants.map((v) => leftOutStages(v, variants.length > 1)),
            rest);
}

// What is drawn, as rows: the blocks of the compute lanes.
function timelineTable() {
  const LIMIT = 400;
  const rows = [];
  for (const v of variants) for (const lane of v.lanes) {
    if (!lane.kernels) continue;
    for (let b = 0; b < lane.blocks.n && rows.length < LIMIT; ++b) {
      const i = lane.blocks.first[b];
      rows.push([v.label, String(lane.rank), kindTitles[kindNames[lane.kind[i]]] || "", lane.microbatch[i] < 0 ? null :
                 String(lane.microbatch[i]), psText(lane.blocks.begin[b]), psText(lane.blocks.end[b] - lane.blocks.begin[b])]);
    }
  }
  return table(rows.length === LIMIT ? `The first ${LIMIT} boxes` : "", ["Variant", "Rank", "Pass", "Micro-batch", "Begin",
               "Duration"], rows);
}

function lazily(summary, make) {
  const node = folded(summary);
  node.addEventListener("toggle", () => { if (node.open && node.children.length === 1) node.append(make()); });
  return node;
}

function drawTimeline() {
  canvas = el("canvas", {role: "img", "aria-label": "Timelines of " + variants.map((v) =>
      `${v.label} (${psText(v.timeline.end_ps)})`).join(", ") + "; the same numbers follow as a table"});
  paint2d = canvas.getContext("2d");
  strip = document.createElement("canvas");
  strip2d = strip.getContext("2d");
  scroller = el("div", {class: "scroller", "aria-hidden": "true"}, el("div"));
  frame = el("div", {class: "frame", tabindex: "0", role: "group", "aria-label":
      "Timeline. W and S zoom, A and D move, slash searches, question mark lists all keys."}, canvas, scroller);
  detail = el("div", {class: "detail", "aria-live": "polite"});
  const button = (text, title, act) => el("button", {type: "button", title, onclick: () => {
    act();
    frame.focus({preventScroll: true});
  }}, text);
  const mostLanes = variants.some((v) => v.lanes.some((l) => !l.kernels));
  section("timeline", variants.length > 1 ? "Timelines" : "Timeline",
      el("p", {class: "lead"}, variants.length > 1 ? "All variants on one time axis. " : "",
         "One line per rank; a number is the micro-batch of a pass, hatching is idle time.",
         firstEnd() < Math.max(...variants.map((v) => v.timeline.end_ps)) ?
             ` It opens on the first ${psText(firstEnd())}; Fit shows all.` : ""),
      el("div", {class: "toolbar"}, el("label", {class: "searchbox"}, el("span", {class: "hide"}, "Search"),
         el("input", {id: "search", type: "search", placeholder: "Search: layer 5, all-reduce, mb 3   ( / )",
                      autocomplete: "off"}), el("span", {id: "matches", role: "status"})),
         button("+", "Zoom in (W)", () => zoom(0.6)), button("\u2212", "Zoom out (S)", () => zoom(1 / 0.6)),
         button("Fit", "The whole step (0)", fitView),
         mostLanes ? button("Communication", "Show or hide communication lanes (C)", toggleCommunication) : null,
         button("Keys", "List of keys (?)", keys["?"])),
      el("details", {id: "keys", class: "keys"}, el("summary", {}, "Keys and mouse"), el("dl", {class: "meanings"},
         keyTexts.flatMap(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)]))),
      kindButtons(), frame, el("img", {id: "print", alt: "", hidden: true}), detail, leftOutNote(),
      lazily("As a table", timelineTable));
  timeline.end = Math.max(...variants.map((v) => v.timeline.end_ps), 1);
  readTheme();
  layRows();
  showDetail(null);
  resizeTimeline();
  listenToMouse();
  listenToKeys();
  setView(0, firstEnd() * 1.02);
  new ResizeObserver(resizeTimeline).observe(frame);
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"])
    matchMedia(query).addEventListener("change", () => { readTheme(); repaint(); });
}

// Paper has no scroll bar: the whole timeline becomes one picture of a fixed width.
function preparePrint() {
  const {width, viewport, scroll} = timeline;
  document.documentElement.classList.add("paper");
  readTheme();
  timeline.width = 1040;
  timeline.viewport = Math.min(timeline.height, 6000);
  timeline.scroll = 0;
  paintTimeline();
  const image = document.getElementById("print");
  image.src = canvas.toDataURL("image/png");
  image.alt = canvas.getAttribute("aria-label");
  image.hidden = false;
  Object.assign(timeline, {width, viewport, scroll});
}
function finishPrint() {
  document.getElementById("print").hidden = true;
  document.documentElement.classList.remove("paper");
  readTheme();
  resizeTimeline();
}

async function start() {
  // What needs no lanes is there before they are read.
  drawSummary();
  drawBreakdown();
  drawComparison();
  await readTimelines();
  if (variants.some((v) => v.lanes.length)) drawTimeline();
  drawMonitor();
  drawMemory();
  drawCost();
  drawReproduce();
  if (canvas) {
    paintTimeline();
    addEventListener("beforeprint", preparePrint);
    addEventListener("afterprint", finishPrint);
  }
  if (location.hash.length > 1) document.getElementById(location.hash.slice(1))?.scrollIntoView({behavior: "instant"});
  document.body.dataset.ready = "1";
}

start().catch((error) => {
  console.error(error);
  document.getElementById("main").append(el("p", {class: "callout bad"}, "The page could not be drawn: " + error.message));
});

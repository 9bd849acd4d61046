// Where the time goes: one bar per variant on one scale; the parts add up to the step.

const timeCategories = page.time_categories;

function legend(entries) {
  return el("ul", {class: "legend"}, entries.map((c) =>
      el("li", {}, el("span", {class: "swatch cat-" + c.name, "aria-hidden": "true"}), c.title)));
}

function bar(v, longest) {
  const r = v.report;
  const step = r.simulated_step_s;
  const parts = timeCategories.map((c) => ({...c, time: r.breakdown_s[c.name]})).filter((c) => c.time > 0);
  const label = `${v.label}: ` + parts.map((c) => `${c.title} ${percent(part(c.time, step))}`).join(", ");
  return el("div", {class: "barrow" + (r.step_time_s === null ? " fails" : "")},
      el("div", {class: "barname"}, el("span", {}, v.label),
         el("small", {}, r.step_time_s === null ? "does not run" : "rank " + r.slowest_rank)),
      el("div", {class: "bar", role: "img", "aria-label": label, css: {"--length": 100 * step / longest + "%"}},
         parts.map((c) => {
           const width = c.time / longest;
           return el("div", {class: "part cat-" + c.name, css: {flex: String(1000 * part(c.time, step))},
                             title: `${c.title}: ${timeText(c.time)}, ${percent(part(c.time, step))}`},
                     width > 0.045 ? el("span", {}, percent(part(c.time, step), width > 0.06 ? 1 : 0)) : "");
         })),
      el("div", {class: "bartime"}, timeText(step)));
}

function breakdownTable() {
  const rows = timeCategories.filter((c) => variants.some((v) => v.report.breakdown_s[c.name] > 0)).map((c) =>
      [el("span", {}, el("span", {class: "swatch cat-" + c.name}), " " + c.title),
       ...variants.flatMap((v) => [timeText(v.report.breakdown_s[c.name]),
                                   percent(part(v.report.breakdown_s[c.name], v.report.simulated_step_s))])]);
  const total = ["Step", ...variants.flatMap((v) => [timeText(v.report.simulated_step_s), percent(1)])];
  total.className = "total";
  return table("Every picosecond of the slowest rank's step, counted once",
               ["Part", ...variants.flatMap((v) => [v.label, "share"])], [...rows, total]);
}

// Minimum, median and maximum over all ranks, by category.
function spreadTable(v) {
  const rows = timeCategories.filter((c) => v.report.breakdown_over_ranks_s[c.name]?.max > 0).map((c) => {
    const s = v.report.breakdown_over_ranks_s[c.name];
    return [c.title, timeText(s.min), timeText(s.median), timeText(s.max)];
  });
  return table(v.label, ["Part", "least of any rank", "median", "most of any rank"], rows);
}

// Where GPUs are of several kinds, or replicas take different parts of the batch.
function gpuTable() {
  const rows = variants.flatMap((v) => v.report.gpu_shares.map((g) => [
    v.label, g.gpu, String(g.ranks),
    g.least_micro_batch === g.most_micro_batch ? String(g.most_micro_batch)
                                               : `${g.least_micro_batch} to ${g.most_micro_batch}`,
    percent(g.busy_fraction), bytesText(g.peak_bytes),
    el("span", {class: g.peak_bytes > g.capacity_bytes ? "over" : ""},
       `${percent(part(g.peak_bytes, g.capacity_bytes), 0)} of ${bytesText(g.capacity_bytes)}`)]));
  return rows.length ? table("What each kind of GPU does",
      ["Variant", "GPU", "Ranks", "Micro-batch", "Computes", "Peak memory", "of capacity"], rows, {left: 2}) : null;
}

// Where several jobs share the cluster.
function jobsTable() {
  const rows = variants.flatMap((v) => v.report.jobs.map((j) => [
    v.label, j.name, String(j.ranks), timeText(j.alone_s),
    j.steps ? timeText(j.together_s) : "\u2013",
    j.steps ? `${j.slowdown >= 1 ? "+" : ""}${percent(j.slowdown - 1)}` : "\u2013"]));
  return rows.length ? table("Jobs that share the cluster: a step of each by itself, and beside the others",
      ["Variant", "Job", "Ranks", "Alone", "Together", "Longer"], rows, {left: 2}) : null;
}

function drawBreakdown() {
  const longest = Math.max(...variants.map((v) => v.report.simulated_step_s), 1e-12);
  const used = timeCategories.filter((c) => variants.some((v) => v.report.breakdown_s[c.name] > 0));
  section("time", "Where the time goes",
      el("p", {class: "lead"}, "The step of the slowest rank of each variant, on one scale. ",
         "Communication counts only where no kernel hides it."),
      legend(used), el("div", {class: "bars panel"}, variants.map((v) => bar(v, longest))),
      gpuTable(),
      jobsTable(),
      folded("As a table", breakdownTable()),
      folded("Over all ranks", ...variants.map(spreadTable)),
      folded("What the parts mean", el("dl", {class: "meanings"}, timeCategories.flatMap((c) =>
          [el("dt", {}, c.title), el("dd", {}, c.meaning)]))));
}

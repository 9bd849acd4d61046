// The style of the calibration page: colours and type of report.html, light and dark, and print.
#pragma once

namespace trainyard::fit {

inline constexpr const char* kPageStyle = R"css(
:root { --page: #f6f7f9; --panel: #fff; --ink: #16222e; --quiet: #5b6875; --line: #dfe4ea;
  --accent: #1d5fa8; --good: #1d7a46; --bad: #b3261e; --warn: #8a5a00; --fit: #9db4cc;
  --band: #e3f4e9; --shadow: 0 1px 2px rgba(20, 40, 60, .07), 0 2px 8px rgba(20, 40, 60, .05); }
@media (prefers-color-scheme: dark) {
  :root { --page: #0f151b; --panel: #18212a; --ink: #e6ecf2; --quiet: #9aa8b5; --line: #2c3844;
    --accent: #6fb1f2; --good: #6fd39a; --bad: #ff8a80; --warn: #f0c060; --fit: #51687e;
    --band: #15352a; --shadow: none; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
.wide { max-width: 1340px; margin: 0 auto; padding: 0 24px; }
header.top { padding-top: 26px; padding-bottom: 8px; }
.brand { margin: 0; font-weight: 700; letter-spacing: .02em; color: var(--accent); }
.brand span { color: var(--quiet); font-weight: 400; }
h1 { margin: 2px 0 4px; font-size: 28px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0 0 10px; font-size: 21px; }
h3 { margin: 0; font-size: 15px; }
section { padding: 22px 0 6px; }
p { margin: 0 0 10px; max-width: 110ch; }
.quiet, figcaption, footer { color: var(--quiet); }
footer { font-size: 13px; padding-top: 24px; padding-bottom: 24px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(190px, 100%), 1fr));
  gap: 14px; }
.card, .panel { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; box-shadow: var(--shadow); min-width: 0; }
.card .big { font-size: 28px; font-weight: 650; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.card .big.good { color: var(--good); }
.card .big.warn { color: var(--warn); }
.card .big.bad { color: var(--bad); }
.card small { display: block; color: var(--quiet); font-size: 13px; line-height: 1.4; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; padding: 0;
  margin: 0 0 12px; font-size: 13px; }
.legend svg { width: 16px; height: 16px; vertical-align: -3px; margin-right: 5px; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 20px; }
@media (max-width: 900px) { .two { grid-template-columns: 1fr; } }
.panel + .panel { margin-top: 16px; }
.panel > p { font-size: 14px; margin: 2px 0 8px; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: 13px; }
.chart { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); }
.equal { stroke: var(--quiet); stroke-width: 1.2; }
.band { fill: var(--band); }
.tick { fill: var(--quiet); font-size: 11px; }
.axis { fill: var(--ink); font-size: 12px; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
circle.fitted { fill: var(--fit); fill-opacity: .75; }
circle.held-out { fill: var(--accent); fill-opacity: .8; }
path.rejected { stroke: var(--bad); stroke-width: 1.8; fill: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; background: var(--panel);
  border: 1px solid var(--line); width: 100%; }
th, td { padding: 5px 12px; border-bottom: 1px solid var(--line); text-align: left;
  font-weight: 400; vertical-align: top; }
thead th { font-weight: 650; white-space: nowrap; border-bottom-width: 2px; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.group > * { font-weight: 650; border-top: 2px solid var(--line); }
tr.part > th { padding-left: 28px; color: var(--quiet); }
td.meter { width: 22%; min-width: 110px; vertical-align: middle; }
.meter i { display: block; height: 9px; border-radius: 5px; background: var(--accent); }
.meter i.bad { background: var(--bad); }
.meter i.warn { background: var(--warn); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(270px, 100%), 1fr));
  gap: 8px 22px; margin: 0; }
dt { color: var(--quiet); font-size: 13px; }
dd { margin: 0; overflow-wrap: anywhere; }
@media print {
  :root { --page: #fff; --shadow: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11px; }
  .panel, .card, figure { break-inside: avoid; }
  .two { grid-template-columns: 1fr 1fr; }
}
)css";

}  // namespace trainyard::fit

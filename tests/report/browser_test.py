"""Opens the fixture's pages in Chromium: nothing is fetched, nothing complains, keys, wheel and search work.

browser_test.py <chromium> <folder of pages>
"""

import json
import os
import re
import sys

from devtools import Browser

SHIFT = 8
failures = []


def check(condition, what):
    print(("ok    " if condition else "FAILED"), what)
    if not condition:
        failures.append(what)


def view(browser):
    return browser.evaluate("trainyard.view()")


def span(browser):
    now = view(browser)
    return now["to"] - now["from"]


def plot(browser):
    """A point in the middle of the first compute lane."""
    browser.evaluate("document.querySelector('.frame').scrollIntoView({block: 'center', behavior: 'instant'})")
    browser.frame()
    box = browser.evaluate("(b => [b.x, b.y, b.width, b.height])"
                           "(document.querySelector('.frame canvas').getBoundingClientRect())")
    return box[0] + box[2] * 0.5, box[1] + 70, box


def embedded(path):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    return json.loads(re.search(r'id="result">(.*?)</script>', page, re.S).group(1))


def test_sections(browser, folder):
    browser.open(os.path.join(folder, "report.html"))
    titles = browser.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    check(titles == ["summary", "time", "compare", "timeline", "memory", "reproduce"], f"sections: {titles}")
    # Every bar's parts fill exactly the bar, and bars are as long as their steps.
    widths = browser.evaluate(
        "[...document.querySelectorAll('.bar')].map(b => [b.getBoundingClientRect().width,"
        " [...b.children].reduce((s, c) => s + c.getBoundingClientRect().width, 0)])")
    steps = [v["simulated_step_s"] for v in embedded(os.path.join(folder, "report.html"))["variants"]]
    check(len(widths) == 4 and all(abs(a - b) < 1 for a, b in widths), f"parts fill their bars: {widths}")
    check(all(abs(w[0] / widths[0][0] - s / steps[0]) < 0.01 for w, s in zip(widths, steps)),
          "bars are on one scale")
    text = browser.evaluate("document.querySelector('.comparison').textContent")
    check("OOM" in text and "does not fit" in text, "the variant that does not fit stays in the table")
    painted = browser.evaluate(
        "(c => {const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const s = new Set();"
        " for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size})"
        "(document.querySelector('.frame canvas'))")
    check(painted > 20, f"the canvas has {painted} colours")


def test_view(browser):
    x, y, box = plot(browser)
    whole = span(browser)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    browser.frame()
    check(span(browser) == whole, "the wheel belongs to the page until the timeline is clicked")
    x, y, box = plot(browser)
    browser.click(x, y)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    browser.frame()
    check(span(browser) < whole * 0.8, "the wheel zooms in")
    zoomed = span(browser)
    for key, holds, what in [
            ("w", lambda a, b: b < a, "w zooms in"), ("s", lambda a, b: b > a, "s zooms out"),
            ("+", lambda a, b: b < a, "+ zooms in"), ("-", lambda a, b: b > a, "- zooms out")]:
        before = span(browser)
        browser.key(key)
        check(holds(before, span(browser)), what)
    for key, sign in [("d", 1), ("a", -1), ("ArrowRight", 1), ("ArrowLeft", -1)]:
        before = view(browser)["from"]
        browser.key(key)
        check((view(browser)["from"] - before) * sign > 0, f"{key} moves")
    check(abs(span(browser) - zoomed) < zoomed * 1e-9, "moving keeps the zoom")
    before = view(browser)["from"]
    browser.drag(x, y, x - 100, y)
    check(view(browser)["from"] > before, "dragging moves")
    before = span(browser)
    browser.drag(x, y, x + 100, y, modifiers=SHIFT)
    check(span(browser) < before * 0.3, "dragging with Shift zooms to the range")
    browser.key("Escape")
    browser.click(x, y)
    browser.key("0")
    check(abs(span(browser) - whole) < 1, "0 fits the whole step")


def test_search(browser):
    browser.key("/")
    check(browser.evaluate("document.activeElement.id") == "search", "/ goes to the search box")
    browser.call("Input.insertText", text="bucket 1")
    browser.frame()
    # Three variants without tensor parallelism, four stages each, one bucket of that name.
    check(browser.evaluate("trainyard.matches().count") == 12, "bucket 1 is found 12 times")
    browser.key("Enter")
    check(browser.evaluate("trainyard.selected()?.name") == "all-reduce bucket 1", "Enter selects a match")
    first = browser.evaluate("JSON.stringify(trainyard.selected())")
    browser.key("Enter")
    check(browser.evaluate("JSON.stringify(trainyard.selected())") != first, "Enter again goes to the next")
    check("2 of 12" in browser.evaluate("document.getElementById('matches').textContent"), "2 of 12")
    browser.evaluate("document.getElementById('search').select()")
    browser.call("Input.insertText", text="mb 3")
    count = browser.evaluate("trainyard.matches().count")
    check(count > 12, f"mb 3 finds micro-batch 3 ({count} boxes)")
    browser.key("Escape")
    check(browser.evaluate("trainyard.matches().count") == 0, "Escape clears the search")


def test_lanes_and_detail(browser):
    browser.evaluate("document.querySelector('.frame').focus()")
    browser.key("0")
    before = browser.evaluate("trainyard.rows()")
    browser.key("c")
    opened = browser.evaluate("trainyard.rows()")
    check(opened != before, "c shows communication lanes")
    browser.key("c")
    if browser.evaluate("trainyard.rows()") > 20:
        browser.key("c")
    x, y, box = plot(browser)
    browser.click(box[0] + 168 + 12, box[1] + 26 + 30 + 14)
    chosen = browser.evaluate("trainyard.selected()")
    check(chosen and chosen["name"] == "Forward of micro-batch 0", f"a click selects the first box: {chosen}")
    detail = browser.evaluate("document.querySelector('.detail').textContent")
    check("Duration600" in detail.replace("\u00a0", "").replace(" ", ""), f"the panel says how long: {detail!r}")
    browser.key("?")
    check(browser.evaluate("document.getElementById('keys').open"), "? opens the list of keys")
    pressed = browser.evaluate("(b => (b.click(), b.getAttribute('aria-pressed')))(document.querySelector('.kind'))")
    check(pressed == "false", "the legend switches a kind off")
    named = browser.evaluate("[...document.querySelectorAll('[role=img]')].every(n => n.getAttribute('aria-label'))")
    check(named, "every picture has a name")


def test_quiet(browser, what):
    check(browser.complaints() == [], f"{what}: no complaint {browser.complaints()}")
    check(browser.requests() == [], f"{what}: no request {browser.requests()}")


def test_hostile(browser, folder):
    browser.open(os.path.join(folder, "hostile.html"))
    check("owned" not in browser.evaluate("document.title").replace("document.title='owned'", ""), "no title taken")
    made = browser.evaluate("document.querySelectorAll('img:not(#print), iframe, object, embed, svg script').length")
    check(made == 0, "no element made of a name")
    check(browser.evaluate("document.scripts.length") == 3, "no script but the page's own")
    shown = browser.evaluate("document.body.innerText")
    check("\u202e" not in shown and "\x1b" not in shown, "control characters are shown, not obeyed")
    check("<img src=x onerror" in shown, "a tag in a name is text")
    test_quiet(browser, "hostile.html")
    inserted = browser.evaluate(
        "(() => {const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"';"
        " document.body.append(s); return document.title})()")
    check(inserted != "owned", "the policy stops any other script")


def test_without_lanes(browser, folder):
    """What needs no lanes is there before they are read, and where they cannot be."""
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    browser.call("Page.navigate", url="file://" + os.path.join(os.path.abspath(folder), "report.html"))
    browser.wait_for("document.querySelector('#main .callout.bad') !== null")
    titles = browser.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    check(titles == ["summary", "time", "compare"], f"sections without lanes: {titles}")
    check("could not be drawn" in browser.evaluate("document.querySelector('#main').innerText"), "the page says so")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])


def main():
    chromium, folder = sys.argv[1:3]
    browser = Browser(chromium)
    try:
        test_sections(browser, folder)
        test_view(browser)
        test_search(browser)
        test_lanes_and_detail(browser)
        test_quiet(browser, "report.html")
        browser.screenshot(os.path.join(folder, "report.png"))
        for page in ("single.html", "large.html", "bleak.html"):
            browser.open(os.path.join(folder, page))
            test_quiet(browser, page)
            numbers = browser.evaluate("document.body.innerText")
            check("NaN" not in numbers and "undefined" not in numbers, f"{page}: every number is one")
        test_without_lanes(browser, folder)
        test_hostile(browser, folder)
    finally:
        browser.close()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

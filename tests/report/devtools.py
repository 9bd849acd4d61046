"""A headless Chromium driven over its DevTools pipe, with nothing but the standard library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
]


class Browser:
    """One page. Messages end with a NUL byte; the browser reads descriptor 3 and writes 4."""

    def __init__(self, program, size=(1400, 1000), flags=()):
        self.profile = tempfile.mkdtemp()
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        # Above 4 first, so that neither dup2 overwrites what the other still needs.
        high = [os.dup(os.dup(os.dup(to_read))), os.dup(os.dup(os.dup(to_write)))]

        def connect():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [program, *FLAGS, *flags, f"--user-data-dir={self.profile}",
                   f"--window-size={size[0]},{size[1]}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=connect, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for descriptor in (to_read, to_write, *high):
            os.close(descriptor)
        self.buffer = b""
        self.ids = 0
        self.attached = None
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self.attached = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("no answer from the browser")
            data = os.read(self.read_end, 1 << 16)
            if not data:
                raise ConnectionError("the browser has gone")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, timeout=30, **params):
        self.ids += 1
        message = {"id": self.ids, "method": method, "params": params}
        if self.attached:
            message["sessionId"] = self.attached
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.ids:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, timeout=30):
        end = time.monotonic() + timeout
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for('document.body && document.body.dataset.ready === "1"')

    def frame(self):
        """Lets the page paint what it has put off to its next frame."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))
        self.frame()

    def mouse(self, kind, x, y, **params):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def drag(self, x0, y0, x1, y1, modifiers=0):
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1, modifiers=modifiers)
        self.mouse("mouseMoved", (x0 + x1) / 2, y1, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseMoved", x1, y1, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def screenshot(self, path, selector=None):
        params = {}
        if selector:
            box = self.evaluate(f"(b => ({{x: b.x + scrollX, y: b.y + scrollY, width: b.width, "
                                f"height: b.height}}))(document.querySelector({json.dumps(selector)})"
                                ".getBoundingClientRect())")
            params = {"clip": {**box, "scale": 1}, "captureBeyondViewport": True}
        data = self.call("Page.captureScreenshot", format="png", **params)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """Console errors, exceptions and policy violations since the page was opened."""
        self.evaluate("0")
        found = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self):
        """What the page asked for, other than itself and what it holds."""
        urls = [e["params"]["request"]["url"] for e in self.events
                if e["method"] == "Network.requestWillBeSent"]
        return [u for u in urls[1:] if not u.startswith("data:")]

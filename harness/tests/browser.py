# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium: how wide it is, and what a link into it shows. Where Chromium is not installed, tests that need it
say so."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ASK = """<script>addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement, target = document.getElementById(location.hash.slice(1)) || document.body;
  const folds = [];
  for (let part = target; part; part = part.parentElement) if (part.localName === "details") folds.push(part.open);
  const wide = [...document.querySelectorAll("main *")].filter((one) => one.closest(".card") === null
    && one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 80));
  parent.postMessage(JSON.stringify({ width: root.clientWidth, scroll_width: root.scrollWidth, height: root.scrollHeight,
    folds, top: target.getBoundingClientRect().top, wide: wide.slice(0, 5) }), "*");
}, 100))</script>"""
"""A window of Chromium has a least width; a frame has none."""
FRAME = """<body><iframe src="page.html{hash}" width="{width}" height="900" style="border: 0"></iframe>
<script>onmessage = (message) => document.body.append("<<" + message.data + ">>")</script></body>"""


def look(text: str, folder: Path, width: int, address: str = "") -> dict[str, Any]:
    """What the page says of itself in a frame of so many pixels, opened at #address."""
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("Chromium is not installed: ci/screenshot.sh installs it")
    if "script-src" not in text:  # a page without scripts permits none
        text = text.replace("style-src 'unsafe-inline'", "style-src 'unsafe-inline'; script-src 'unsafe-inline'")
    (folder / "page.html").write_text(text.replace("</body>", f"{ASK}</body>"))
    (folder / "frame.html").write_text(FRAME.format(width=width, hash=f"#{address}" if address else ""))
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"),
        *("--window-size=1600,1000", "--virtual-time-budget=10000", "--dump-dom", f"file://{folder / 'frame.html'}"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r"<<(\{.*\})>>", html.unescape(run.stdout))
    assert found, f"Chromium said nothing of the page: {run.stderr[-400:]}"
    return dict(json.loads(found[1]))

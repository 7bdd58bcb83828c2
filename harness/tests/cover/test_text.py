# SPDX-License-Identifier: Apache-2.0
"""Words for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import samples
from faultline.base.text import without_controls
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Certificate, Event


def test_control_characters_of_a_target_are_shown_and_not_sent() -> None:
    said = "red \x1b[31m bell \x07 \x08\x0c\r nul \x00 del \x7f csi \x9b; \\u001b stays, \\\\ too, \t and \n, é and 𝄞"
    for is_ascii in (True, False):
        read = json.loads(without_controls(json.dumps({"said": said}, ensure_ascii=is_ascii)))["said"]
        assert read == (
            r"red \u001b[31m bell \u0007 \b\f\r nul \u0000 del \u007f csi \u009b; \u001b stays, \\ too, "
            "\t and \n, é and 𝄞"
        ), is_ascii


def test_what_the_engine_says_of_a_target_is_cleaned_on_its_way_in(
    fake_engine: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    heard: list[Event] = []
    certificate = {**samples.CERTIFICATE, "why": "the target said \x1b]0;title\x07"}
    printed = [certificate, {"event": "done", "verdict": "pass"}]
    Engine(fake_engine({"explore": {"print": printed}})).events(["explore", str(config)], heard.append)
    [found, _] = heard
    assert isinstance(found, Certificate)
    assert found.why == r"the target said \u001b]0;title\u0007"

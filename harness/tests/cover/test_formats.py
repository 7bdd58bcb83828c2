# SPDX-License-Identifier: Apache-2.0
"""The joints are versioned: a header that changes needs another version, or readers of old files are fooled. When one of these
tests fails: bump the version in the header and in its readers, then write the new digest here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

JOINTS = {
    "pintools/trace.h": ("FL_TRACE_VERSION", 6, "50ca3dfdd90c5786"),
    "pintools/wear.h": ("FL_WEAR_VERSION", 2, "d9af0dad56690109"),
    "runner/recording.h": ("FL_RECORDING_VERSION", 3, "db3cd90f7f8656af"),
    "include/adapter.h": ("FL_ADAPTER_ABI", 8, "e9feaa4326473620"),
}
PROTOCOL = "runner/protocol.h"
PROTOCOL_JOINT = ("FL_PROTOCOL_VERSION", 16, "bedc2db8d39d5fee")
REPORT_JOINT = ("FL_REPORT_VERSION", 11, "d6454d5a3d14a8d8")
"""Of the heap report alone: the oracle reads it."""


def digest_of_code(text: str) -> str:
    """Of the declarations only: comments and layout may change without a new version."""
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return hashlib.sha256(" ".join(code.split()).encode()).hexdigest()[:16]


def check_version(path: str, whole: str, part: str, joint: tuple[str, int, str]) -> None:
    macro, version, digest = joint
    assert f"#define {macro} {version}u" in whole
    assert digest_of_code(part) == digest, f"{path} changed: did you bump {macro}? New digest: {digest_of_code(part)}"


@pytest.mark.parametrize("path", JOINTS)
def test_a_changed_format_has_a_new_version(root: Path, path: str) -> None:
    text = (root / path).read_text()
    check_version(path, text, text, JOINTS[path])


def test_a_changed_protocol_has_a_new_version(root: Path) -> None:
    """What is not of the heap report has one version, the heap report another one."""
    text = (root / PROTOCOL).read_text()
    before, found, rest = text.partition("/* ==== the heap report ")
    report, ends, after = rest.partition("/* ==== loads ")
    assert "" not in (found, ends)
    check_version(PROTOCOL, text, found + report, REPORT_JOINT)
    versions = re.compile(r"^#define FL_(?:PROTOCOL|REPORT)_VERSION .*$", re.MULTILINE)
    check_version(PROTOCOL, text, versions.sub("", before) + ends + after, PROTOCOL_JOINT)


def test_a_changed_comment_is_no_change() -> None:
    assert digest_of_code("int a; /* old\n words */\n\nint b;") == digest_of_code("int a;\nint b; /* new */")
    assert digest_of_code("int a;") != digest_of_code("long a;")

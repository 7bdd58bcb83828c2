# SPDX-License-Identifier: Apache-2.0
"""The joints are versioned: a header that changes needs another version, or readers of old files are fooled. When one of these
tests fails: bump the version in the header and in its readers, then write the new digest here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

JOINTS = {
    "pintools/trace.h": ("FL_TRACE_VERSION", 3, "7193562430846b68"),
    "pintools/wear.h": ("FL_WEAR_VERSION", 2, "d9af0dad56690109"),
    "include/adapter.h": ("FL_ADAPTER_ABI", 5, "ae629856685da9a0"),
    "runner/protocol.h": ("FL_REPORT_VERSION", 6, "ea5a2704b5888f04"),
}


def digest_of_code(text: str) -> str:
    """Of the declarations only: comments and layout may change without a new version."""
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return hashlib.sha256(" ".join(code.split()).encode()).hexdigest()[:16]


@pytest.mark.parametrize("path", JOINTS)
def test_a_changed_format_has_a_new_version(root: Path, path: str) -> None:
    macro, version, digest = JOINTS[path]
    text = (root / path).read_text()
    assert f"#define {macro} {version}u" in text
    assert digest_of_code(text) == digest, f"{path} changed: did you bump {macro}? New digest: {digest_of_code(text)}"


def test_a_changed_comment_is_no_change() -> None:
    assert digest_of_code("int a; /* old\n words */\n\nint b;") == digest_of_code("int a;\nint b; /* new */")
    assert digest_of_code("int a;") != digest_of_code("long a;")

# SPDX-License-Identifier: Apache-2.0
"""What is said of a Pin kit that is missing or cannot be used; and the whole tool against the headers of one, where there are any.

PIN_KIT_HEADERS names a folder with a kit's headers, Makefiles and C library (pincrt), as a snapshot without Pin itself has them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.errors import InfrastructureError
from faultline.pipeline.tracers.pin import Pin

RUN = ("run", "nvm_malloc", "-w", "smoke", "--tracer", "pin")
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00"
X86_64, AARCH64 = b"\x3e\x00", b"\xb7\x00"
VERSION = """#define PIN_PRODUCT_VERSION_MAJOR 3
#define PIN_PRODUCT_VERSION_MINOR %d
#define PIN_BUILD_NUMBER 98612
#define PIN_COMMIT_HASH "6bd5931f2"
"""


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make_kit(folder: Path, machine: bytes = X86_64, minor: int = 24) -> Path:
    """What is looked at of a kit."""
    write(folder / "source/include/pin/pin.H", b"")
    write(folder / "source/include/pin/pin_version.h", (VERSION % minor).encode())
    write(folder / "intel64/bin/pinbin", ELF + machine)
    write(folder / "intel64/lib/libpin.a", b"")
    write(folder / "pin", b"")
    return folder


def without(kit: Path, *parts: str) -> Path:
    for part in parts:
        (kit / part).unlink()
    return kit


def test_a_kit_has_a_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIN_ROOT", str(make_kit(tmp_path)))
    assert Pin().version() == "pin-3.24-98612-6bd5931f2"


def test_no_kit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIN_ROOT", raising=False)
    with pytest.raises(InfrastructureError) as raised:
        Pin().version()
    assert raised.value.message == "PIN_ROOT is not set"
    assert "set PIN_ROOT to its folder" in (raised.value.hint or "")


def test_doctor_says_how_to_get_a_kit(faultline: Faultline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIN_ROOT", raising=False)
    run = faultline("doctor", "--json", "--tracer", "pin")
    checks = {check["name"]: check for check in json.loads(run.stdout)}
    assert run.returncode == 3
    assert checks["pin"]["detail"] == "PIN_ROOT is not set"
    assert "download a Pin kit for Linux and Intel 64 from Intel" in checks["pin"]["hint"]


def other_machine(folder: Path) -> Path:
    return make_kit(folder, AARCH64)


def for_32_bit(folder: Path) -> Path:
    write(folder / "ia32/bin/pinbin", b"")
    return without(make_kit(folder), "intel64/bin/pinbin")


def for_windows(folder: Path) -> Path:
    write(folder / "pin.exe", b"")
    return without(make_kit(folder), "intel64/bin/pinbin", "pin")


KITS = {
    "no folder": (lambda folder: folder / "nowhere", "no Pin kit: there is no source/include/pin/pin.H"),
    "another folder": (lambda folder: folder, "no Pin kit: there is no source/include/pin/pin.H"),
    "another machine": (other_machine, "a kit of another architecture"),
    "32 bits": (for_32_bit, "a kit for 32-bit programs only"),
    "Windows": (for_windows, "a kit for Windows"),
    "no Pin": (lambda folder: without(make_kit(folder), "intel64/bin/pinbin"), "not a whole kit"),
    "no library": (lambda folder: without(make_kit(folder), "intel64/lib/libpin.a"), "no intel64/lib/libpin.a"),
    "too old": (lambda folder: make_kit(folder, minor=16), "pin-3.16-98612-6bd5931f2, expected 3.24 or newer"),
    "no version": (
        lambda folder: without(make_kit(folder), "source/include/pin/pin_version.h"),
        "PIN_PRODUCT_VERSION_MAJOR",
    ),
}


@pytest.mark.parametrize("name", KITS)
def test_a_kit_that_cannot_be_used_is_bad_input(
    faultline: Faultline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    make, word = KITS[name]
    monkeypatch.setenv("PIN_ROOT", str(make(tmp_path)))
    run = faultline("build", "--tools", "--tracer", "pin")
    assert_one_clear_line(run, 2, word, "hint: download a Pin kit")


def test_a_run_ends_with_the_same_line(faultline: Faultline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIN_ROOT", str(other_machine(tmp_path)))
    run = faultline(*RUN)
    assert run.returncode == 2
    assert "a kit of another architecture" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_only_pins_own_names_are_open_after_the_link(root: Path, tmp_path: Path) -> None:
    """All sources compile with the kit's flags, and what they use is Pin's, or in the kit's C and C++ libraries."""
    headers = os.environ.get("PIN_KIT_HEADERS")
    if not headers:
        pytest.skip("PIN_KIT_HEADERS is not set: the Pin tool was not compiled against a kit's headers here")
    command = [
        "make",
        "--no-print-directory",
        "-C",
        str(root / "pintools" / "pin"),
        f"PIN_ROOT={headers}",
        f"OUT={tmp_path}",
    ]
    run = subprocess.run([*command, "partial"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    names = (tmp_path / "open-symbols").read_text().splitlines()
    assert "LEVEL_PINCLIENT::PIN_StartProgram(void*)" in names
    strangers = [
        name for name in names if not name.startswith(("LEVEL_BASE::", "LEVEL_CORE::", "LEVEL_PINCLIENT::", "xed_"))
    ]
    assert strangers == []

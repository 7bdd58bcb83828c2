# SPDX-License-Identifier: Apache-2.0
"""The Pin tool (pintools/pin). It needs a Pin kit, which no package has: Intel gives it away, and the user unpacks it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

from faultline.base.cache import Cache, key_of
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.pipeline.build import Built, run_in, sources_below, version_of
from faultline.pipeline.tracers.tracer import Session, Tracer

KIT = "PIN_ROOT"
HOW_TO_GET = (
    "download a Pin kit for Linux and Intel 64 from Intel (search for: Intel Pin downloads; 3.24 or newer), unpack it,"
    f" and set {KIT} to its folder"
)
HEADER = Path("source/include/pin/pin.H")
VERSION = Path("source/include/pin/pin_version.h")
LAUNCHER = Path("pin")
PROGRAM = Path("intel64/bin/pinbin")
LIBRARY = Path("intel64/lib/libpin.a")
OTHER_KITS = {
    "pin.exe": "for Windows",
    "ia32/bin/pinbin": "for 32-bit programs only",
}
"""By a file of it."""
ELF_OF_X86_64 = b"\x7fELF\x02\x01"
MACHINE_AT = 18
X86_64 = (62).to_bytes(2, "little")
OLDEST = (3, 24)


class Pin(Tracer):
    name = "pin"
    summary = f"a Pin tool; any binary, needs a Pin kit in {KIT}; never run under a real Pin so far"

    def version(self) -> str:
        """Of the kit, which is checked. Raises InfrastructureError where none is named, and BadInputError where what is named
        cannot be used."""
        return _version(_kit())

    def build(self, root: Path, cache: Cache) -> Built:
        """By its own Makefile, with the kit's flags. Built.path is the folder with faultline.so."""
        kit, folder = _kit(), root / "pintools" / "pin"
        inputs = (*sources_below(folder), folder / "Makefile", folder / "kit.mk", root / "pintools" / "trace.h")
        contents = [part for path in inputs for part in (path.relative_to(root).as_posix(), path.read_bytes())]
        key = key_of("tracer", self.name, _version(kit), version_of("g++"), *contents)

        def fill(temporary: Path) -> None:
            log = cache.folder / "builds" / f"{key}.log"
            log.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(prefix="faultline-tool-") as made:  # make takes no name with a space
                (Path(made) / "kit").symlink_to(kit)
                command = ["make", "--no-print-directory", "-C", str(folder), f"PIN_ROOT={made}/kit", f"OUT={made}/out"]
                run_in(root, "the Pin tool", [*command, "tool"], log)
                shutil.copy(Path(made) / "out" / "faultline.so", temporary)

        return Built(cache.folder_entry("builds", key, fill), key)

    def trace_command(self, built: Built, session: Session) -> list[str]:
        """Under fixed addresses: Pin does not fix them, and the runner that did so itself would be lost sight of."""
        tool = (str(_kit() / LAUNCHER), "-t", str(built.path / "faultline.so"))
        return ["setarch", "--addr-no-randomize", *tool, *self.options(session)]

    def options(self, session: Session) -> list[str]:
        """Of the tool, and the program behind them."""
        return [
            *("-trace", str(session.trace)),
            *("-pm_folder", str(session.pm_folder)),
            *("-module_root", str(session.module_root)),
            *("-process", str(session.process)),
            *("-schedule_seed", str(session.schedule_seed)),
            *("--", *session.program),
        ]


def _kit() -> Path:
    named = os.environ.get(KIT)
    if not named:
        raise InfrastructureError(f"{KIT} is not set", HOW_TO_GET)
    kit = Path(named).resolve()
    if not (kit / HEADER).is_file():
        raise BadInputError(f"{KIT}={named}: no Pin kit: there is no {HEADER}", HOW_TO_GET)
    if platform.machine() != "x86_64":
        raise BadInputError(f"{KIT}={named}: this machine is {platform.machine()}, Pin kits are for x86_64", HOW_TO_GET)
    if not (kit / PROGRAM).is_file():
        other = next((said for file, said in OTHER_KITS.items() if (kit / file).exists()), None)
        what = f"a kit {other}" if other else "not a whole kit"
        raise BadInputError(f"{KIT}={named}: {what}: there is no {PROGRAM}", HOW_TO_GET)
    with (kit / PROGRAM).open("rb") as program:
        start = program.read(MACHINE_AT + len(X86_64))
    if not start.startswith(ELF_OF_X86_64) or start[MACHINE_AT:] != X86_64:
        raise BadInputError(
            f"{KIT}={named}: a kit of another architecture: {PROGRAM} is no program of Linux on x86_64", HOW_TO_GET
        )
    for part in (LAUNCHER, LIBRARY):
        if not (kit / part).is_file():
            raise BadInputError(f"{KIT}={named}: not a whole kit: there is no {part}", HOW_TO_GET)
    if _numbers(kit) < OLDEST:
        raise BadInputError(
            f"{KIT}={named}: {_version(kit)}, expected {'.'.join(map(str, OLDEST))} or newer", HOW_TO_GET
        )
    return kit


def _defined(kit: Path, name: str) -> str:
    text = (kit / VERSION).read_text(errors="replace") if (kit / VERSION).is_file() else ""
    found = re.search(rf'^#define\s+{name}\s+"?(\w+)"?', text, re.MULTILINE)
    if found is None:
        raise BadInputError(f"{kit / VERSION}: no {name} is defined there", HOW_TO_GET)
    return found[1]


def _numbers(kit: Path) -> tuple[int, int]:
    return int(_defined(kit, "PIN_PRODUCT_VERSION_MAJOR")), int(_defined(kit, "PIN_PRODUCT_VERSION_MINOR"))


def _version(kit: Path) -> str:
    return f"pin-{'.'.join(map(str, _numbers(kit)))}-{_defined(kit, 'PIN_BUILD_NUMBER')}-{_defined(kit, 'PIN_COMMIT_HASH')}"

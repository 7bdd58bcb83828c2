# SPDX-License-Identifier: Apache-2.0
"""The default tracer: a Valgrind tool of our own (pintools/valgrind). It traces any binary."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from faultline.base.cache import Cache, hint_to_install, key_of
from faultline.base.errors import InfrastructureError
from faultline.pipeline.build import Built, run_in, sources_below, version_of
from faultline.pipeline.tracers.tracer import Session, Tracer, WearRun

COMMAND = ("valgrind", "--tool=faultline", "-q", "--vgdb=no")


class Valgrind(Tracer):
    name = "valgrind"
    summary = "a Valgrind tool of its own; any binary, needs the package valgrind"

    def version(self) -> str:
        return _version()

    def build(self, root: Path, cache: Cache) -> Built:
        """By its own Makefile. Built.path is the folder for VALGRIND_LIB: the tool, and links to what Valgrind ships."""
        folder = root / "pintools" / "valgrind"
        joints = (root / "pintools" / "trace.h", root / "runner" / "recording.h", root / "runner" / "protocol.h")
        inputs = (*sources_below(folder), folder / "Makefile", *joints)
        contents = [part for path in inputs for part in (path.relative_to(root).as_posix(), path.read_bytes())]
        key = key_of("tracer", self.version(), version_of("gcc"), *contents)

        def fill(temporary: Path) -> None:
            log = cache.folder / "builds" / f"{key}.log"
            log.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(prefix="faultline-tool-") as made:  # make takes no name with a space
                command = ["make", "--no-print-directory", "-C", str(folder), f"OUT={made}"]
                run_in(root, "the Valgrind tool", command, log)
                shutil.rmtree(Path(made) / "objects", ignore_errors=True)
                shutil.copytree(made, temporary, symlinks=True, dirs_exist_ok=True)

        return Built(cache.folder_entry("builds", key, fill), key)

    def trace_command(self, built: Built, session: Session) -> list[str]:  # noqa: ARG002
        return [
            *COMMAND,
            f"--trace={session.trace}",
            f"--pm-folder={session.pm_folder}",
            f"--module-root={session.module_root}",
            f"--process={session.process}",
            f"--schedule-seed={session.schedule_seed}",
            *session.program,
        ]

    def serve_command(self, built: Built) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in self.environment(built).items()), *COMMAND, "--serve=yes"]

    def wear_command(self, built: Built, run: WearRun) -> list[str]:  # noqa: ARG002
        return [
            *COMMAND,
            f"--wear={run.counts}",
            f"--pm-folder={run.pm_folder}",
            f"--wear-line={run.line_bytes}",
            f"--wear-cache={run.cache_bytes}",
            f"--wear-ways={run.cache_ways}",
            *(["--wear-memory=yes"] if run.is_memory else []),
            *run.program,
        ]

    def environment(self, built: Built) -> dict[str, str]:
        return {"VALGRIND_LIB": str(built.path)}


@functools.cache
def _version() -> str:
    if shutil.which("valgrind") is None:
        raise InfrastructureError(
            "valgrind was not found on PATH",
            hint_to_install(
                "make setup installs it (Debian: apt-get install valgrind)", "Debian: apt-get install valgrind"
            ),
        )
    run = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise InfrastructureError(f"valgrind --version failed: {run.stderr.strip() or run.returncode}")
    return run.stdout.strip()

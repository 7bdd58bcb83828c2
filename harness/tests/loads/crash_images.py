# SPDX-License-Identifier: Apache-2.0
"""Crash images of a campaign, taken from what the engine sends to the fork server: a wrapper of the engine gives it a wrapper of
the runner, which keeps the commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loads.server import Server
from runner_protocol import FL, Command, commands

HEAP_OPTIONS = ("--heap-bytes", "--limit-bytes", "--slots", "--slot-layout", "--address-hint")

ENGINE = """#!{python}
import json, os, pathlib, sys
for argument in sys.argv[1:]:
    path = pathlib.Path(argument)
    if path.suffix == ".json" and path.is_file() and "runner" in (config := json.loads(path.read_text())):
        path.write_text(json.dumps({{**config, "runner": "{runner}"}}))
os.execv("{engine}", ["{engine}", *sys.argv[1:]])
"""
RUNNER = """#!/bin/sh
[ "$1" = serve ] || exec {runner} "$@"
printf '%s\n' "$@" > {folder}/arguments
tee {folder}/commands-$$ | {runner} "$@"
"""


@dataclass
class Image:
    """Files by the number that the engine gave them."""

    folders: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)

    def copy(self) -> Image:
        contents = {file: bytearray(content) for file, content in self.contents.items()}
        return Image(set(self.folders), dict(self.names), contents)

    def apply(self, command: Command) -> None:
        kind, file, offset, size, payload = command[:5]
        if kind == FL.COMMAND_CREATE:
            self.names[file], self.contents[file] = payload.decode(), bytearray(size)
        elif kind == FL.COMMAND_RESIZE:
            content = self.contents[file]
            self.contents[file] = content[:size] + bytes(max(0, size - len(content)))
        elif kind == FL.COMMAND_PUNCH:
            self.contents[file][offset : offset + size] = bytes(size)
        elif kind == FL.COMMAND_REMOVE:
            del self.names[file], self.contents[file]
        elif kind == FL.COMMAND_RENAME:
            name = payload.decode()
            for other in [other for other, known in self.names.items() if known == name and other != file]:
                del self.names[other], self.contents[other]
            self.names[file] = name
        elif kind == FL.COMMAND_WRITE:
            self.contents[file][offset : offset + len(payload)] = payload
        elif kind == FL.COMMAND_MKDIR:
            self.folders.add(payload.decode())
        elif kind == FL.COMMAND_RMDIR:
            self.folders.discard(payload.decode())

    def follow(self, server: Server, before: Image) -> None:
        """Makes a server that has the image `before` have this one."""
        for file, content in before.contents.items():
            if self.names.get(file) != before.names[file] or len(self.contents[file]) != len(content):
                server.send(Command(FL.COMMAND_REMOVE, file))
        for folder in sorted(self.folders - before.folders):
            server.send(Command(FL.COMMAND_MKDIR, payload=folder.encode()))
        for file, content in self.contents.items():
            old = before.contents.get(file)
            if old is None or before.names[file] != self.names[file] or len(old) != len(content):
                server.create(bytes(content), self.names[file], file)
                continue
            for at in range(0, len(content), 64):
                if content[at : at + 64] != old[at : at + 64]:
                    server.write(at, bytes(content[at : at + 64]), file)
        for folder in sorted(before.folders - self.folders, reverse=True):
            server.send(Command(FL.COMMAND_RMDIR, payload=folder.encode()))


def run_images(stream: bytes) -> Iterator[Image]:
    """Of each run, in order; those that equal the one before are left out."""
    image, is_new = Image(), True
    for command in commands(stream):
        is_run = command.kind == FL.COMMAND_RUN
        if is_run and is_new:
            yield image.copy()
        image.apply(command)
        is_new = not is_run if command.kind != FL.COMMAND_STAGES else is_new


def campaign_images(scripts: Path, runner: Path, folder: Path, *arguments: str) -> tuple[list[list[Image]], list[str]]:
    """What `faultline run ARGUMENTS` ran recovery on, of each of its servers, the busiest first; and the options of the heap."""
    taken_by, engine = folder / "runner", folder / "engine"
    taken_by.write_text(RUNNER.format(runner=runner, folder=folder))
    engine.write_text(ENGINE.format(python=sys.executable, runner=taken_by, engine=scripts / "faultline-engine"))
    for script in (taken_by, engine):
        script.chmod(0o755)
    command = [str(scripts / "faultline"), "run", *arguments, "--engine", str(engine)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1, 3), run.stderr
    streams = [list(run_images(path.read_bytes())) for path in folder.glob("commands-*")]
    given = [word for word in (folder / "arguments").read_text().splitlines() if not word.startswith("--relocate=")]
    options = dict(zip(given[1::2], given[2::2], strict=True))
    heap = [part for option in options.items() if option[0] in HEAP_OPTIONS for part in option]
    return sorted(streams, key=len, reverse=True), heap

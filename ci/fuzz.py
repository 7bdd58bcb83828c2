# SPDX-License-Identifier: Apache-2.0
"""Fuzzes every reader of input from outside (fuzz/README.md).

First planted faults, each of which must be found; then every target, as many at a time as there are processors. One line a target
on stdout. Exit code 0: nothing found; 1: a claim failed, the input is named; 3: the fuzzer does not work, or a planted fault was
not found.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"
WORK = ROOT / ".faultline" / "fuzz"
FOUND = WORK / "found"
TRIPLE = "x86_64-unknown-linux-gnu"
FUZZER = WORK / "build" / TRIPLE / "release" / "faultline-fuzz"

# What cargo-fuzz passes, without a sanitizer: those need a nightly compiler, coverage does not.
COVERAGE = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-inline-8bit-counters "
    "-Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
)
INPUT_BYTES = 4096
TRACE_BYTES = 8192
"""A trace of the same number of records is that much longer."""
TIMEOUT_S = 10
RSS_LIMIT_MB = 2048
ADDRESS_SPACE_BYTES = 8 << 30
"""Asking for more is found whether or not the memory is touched."""
START_S = 60
"""A fuzzer that is so much later than it was told to be hangs itself."""


@dataclass(frozen=True)
class Job:
    """One fuzzer. share: its part of the seconds that its reader has."""

    name: str
    is_python: bool = False
    share: float = 1.0

    @property
    def title(self) -> str:
        return f"{self.name} (Python)" if self.is_python else self.name

    def command(self) -> list[str | Path]:
        return [sys.executable, ROOT / "fuzz" / "python_targets.py"] if self.is_python else [FUZZER]


JOBS = (
    Job("trace"),
    Job("litmus"),
    Job("log"),
    Job("token"),
    Job("report"),
    Job("config"),
    Job("workload", share=0.5),
    Job("workload", is_python=True, share=0.5),
    # One reader for two shapes of file.
    Job("allocator", is_python=True, share=0.5),
    Job("matrix", is_python=True, share=0.5),
)
# A fault of each kind, and each reader but `config`: changes of single bytes seldom leave JSON that is accepted, and one planted
# there was not found in millions of runs.
PLANTS = (
    ("panic", Job("trace")),
    ("panic", Job("litmus")),
    ("panic", Job("log")),
    ("panic", Job("workload")),
    ("panic", Job("matrix", is_python=True)),
    ("hang", Job("report")),
    ("hang", Job("workload", is_python=True)),
    ("memory", Job("token")),
)
MERGED = "[0-9a-f]" * 40
"""Names of inputs that fuzzing found. A planted fault is looked for without them: some may have it."""
PLANTED_TIMEOUT_S = {"hang": 5}
PLANT_SEED = 1
"""The same inputs in the same order each time: that a planted fault is found does not hang on luck, only on the time given."""


@dataclass(frozen=True)
class Outcome:
    code: int
    log: str
    seconds: float
    found: list[Path]

    def numbers(self) -> str:
        last = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)", self.log)
        runs, edges, inputs = last[-1] if last else ("0", "0", "0")
        return f"{runs} runs, {edges} edges, {inputs} inputs, {self.seconds:.0f} s"


def build() -> None:
    command: list[str | Path] = [
        "cargo",
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--target",
        TRIPLE,
        "--target-dir",
        WORK / "build",
    ]
    environment = os.environ | {"RUSTFLAGS": COVERAGE}
    run = subprocess.run(
        [*command, "--package", "faultline-fuzz", "--features", "libfuzzer"], env=environment, cwd=ROOT, check=False
    )
    if run.returncode != 0:
        sys.exit("error: the fuzzer could not be built")


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))


def start(job: Job, arguments: Iterable[str | Path], seconds: int, **environment: str) -> tuple[int, str]:
    """The fuzzer's exit code and what it said; -1 when it did not come to its end."""
    try:
        run = subprocess.run(
            [*job.command(), *arguments],
            env=os.environ | {"FUZZ_TARGET": job.name, "RUST_BACKTRACE": "0"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + START_S,
            preexec_fn=limit_memory,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return -1, (error.stdout or b"").decode(errors="replace")
    return run.returncode, run.stdout.decode(errors="replace")


def fuzz(
    job: Job,
    corpus: Path,
    seconds: int,
    seed: int,
    timeout_s: int = TIMEOUT_S,
    seeds: Path | None = None,
    **environment: str,
) -> Outcome:
    """Fuzzes for so long, or until a claim fails. New inputs go to corpus; seeds: the repository's if none."""
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        began = time.monotonic()
        arguments = [
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-timeout={timeout_s}",
            f"-rss_limit_mb={RSS_LIMIT_MB}",
            f"-max_len={TRACE_BYTES if job.name == 'trace' else INPUT_BYTES}",
            f"-artifact_prefix={folder}/",
        ]
        words = ROOT / "fuzz" / "words" / job.name
        if words.exists():
            arguments.append(f"-dict={words}")
        code, log = start(job, [*arguments, corpus, seeds or CORPUS / job.name], seconds, **environment)
        found = [keep(job, path) for path in sorted(Path(folder).iterdir()) if not path.name.startswith("slow-unit")]
        return Outcome(code, log, time.monotonic() - began, found)


def keep(job: Job, path: Path) -> Path:
    target = FOUND / job.name / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, target)
    return target


def find_plant(plant: str, job: Job, seconds: int) -> str | None:
    """None when the planted fault was found."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        corpus, seeds = Path(folder) / "corpus", Path(folder) / "seeds"
        shutil.copytree(CORPUS / job.name, seeds, ignore=shutil.ignore_patterns(MERGED))
        timeout_s = PLANTED_TIMEOUT_S.get(plant, START_S)
        outcome = fuzz(job, corpus, seconds, PLANT_SEED, timeout_s, seeds, FUZZ_PLANT=plant)
    for path in outcome.found:
        path.unlink()
    is_found = outcome.code not in (0, -1) and outcome.found and says(plant, outcome.log)
    print(f"planted {plant} in {job.title}: {'found' if is_found else 'NOT FOUND'}, {outcome.numbers()}", flush=True)
    return None if is_found else f"the planted {plant} in {job.title} was not found:\n{tail(outcome.log)}"


def says(plant: str, log: str) -> bool:
    """The failure is the planted one."""
    signs = {
        "panic": ("the planted panic",),
        "hang": ("libFuzzer: timeout",),
        "memory": ("out-of-memory", "memory allocation of", "MemoryError"),
    }
    return any(sign in log for sign in signs[plant])


def run_job(job: Job, seconds: int, seed: int) -> str | None:
    """None when no claim failed."""
    outcome = fuzz(job, WORK / "corpus" / job.name, max(1, round(seconds * job.share)), seed)
    print(f"{job.title}: {'ok' if outcome.code == 0 else 'FAILED'}, {outcome.numbers()}", flush=True)
    if outcome.code == 0:
        return None
    inputs = ", ".join(str(path.relative_to(ROOT)) for path in outcome.found) or "no input"
    return f"{job.title} (exit code {outcome.code}): {inputs}\n{tail(outcome.log)}"


def tail(log: str) -> str:
    lines = [line for line in log.splitlines() if not re.match(r"#\d|INFO|Uses|\"|\s+#\d+ 0x", line)]
    return "\n".join(lines[-25:])


def merge(job: Job) -> None:
    """Adds to the repository's corpus what takes ways that it does not: the smallest inputs, few of them."""
    before = len(list((CORPUS / job.name).iterdir()))
    arguments = ["-set_cover_merge=1", "-use_counters=0", f"-rss_limit_mb={RSS_LIMIT_MB}", f"-timeout={TIMEOUT_S}"]
    code, log = start(job, [*arguments, CORPUS / job.name, WORK / "corpus" / job.name], 600)
    if code != 0:
        sys.exit(f"error: merging {job.title} failed:\n{tail(log)}")
    print(f"{job.title}: {len(list((CORPUS / job.name).iterdir())) - before} inputs added")


def all_of(work: Callable[..., str | None], tasks: Iterable[tuple[object, ...]]) -> list[str]:
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        failures = [pool.submit(work, *task) for task in tasks]
        return [text for failure in failures if (text := failure.result())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="for each reader (default 30)")
    parser.add_argument("--plant-seconds", type=int, default=300, help="budget of each planted fault (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator, 0: a random one (default 1)")
    parser.add_argument("--target", action="append", choices=sorted({job.name for job in JOBS}), help="only these")
    parser.add_argument("--merge", action="store_true", help="add what was found to fuzz/corpus instead")
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    build()
    jobs = [job for job in JOBS if not arguments.target or job.name in arguments.target]
    if arguments.merge:
        for job in jobs:
            merge(job)
        return 0
    plants = [(plant, job, arguments.plant_seconds) for plant, job in PLANTS if job.name in {job.name for job in jobs}]
    if failures := all_of(find_plant, plants):
        return fail(failures, 3)
    failures = all_of(run_job, [(job, arguments.seconds, arguments.seed) for job in jobs])
    return fail(failures, 1) if failures else 0


def fail(failures: list[str], code: int) -> int:
    for text in failures:
        print(f"error: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

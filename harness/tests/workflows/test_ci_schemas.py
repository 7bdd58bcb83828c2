# SPDX-License-Identifier: Apache-2.0
"""The workflows that `faultline new` writes, and those of this repository in ci/examples, are what the JSON schemas of the services
say, as check-jsonschema has them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from workflows.github_actions import load

TEMPLATES = {
    "harness/faultline/cli/starter/github.yml": "github-workflows",
    "harness/faultline/cli/starter/gitlab.yml": "gitlab-ci",
    "ci/examples/github-workflow.yml": "github-workflows",
    "ci/examples/gitlab-ci.yml": "gitlab-ci",
}


def complaints(text: str, schema: str) -> list[str]:
    read = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema}.json"
    rules: dict[str, Any] = json.loads(read.read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft7Validator(rules).iter_errors(load(text))]


@pytest.mark.parametrize(("path", "schema"), TEMPLATES.items())
def test_each_workflow_fits_the_schema_of_its_service(root: Path, path: str, schema: str) -> None:
    assert complaints((root / path).read_text(), schema) == []


@pytest.mark.parametrize(
    ("path", "whole", "broken"),
    [
        ("github.yml", "runs-on: ubuntu-latest\n    timeout-minutes: 60", "runs-in: ubuntu-latest"),
        ("github.yml", "    needs: base\n", "    needs: {base: 1}\n"),
        ("github.yml", "      pull-requests: write", "      pull-requests: writes"),
        ("github.yml", "      - uses: actions/checkout@v5", "      - use: actions/checkout@v5"),
        ("gitlab.yml", "parallel: 2", "parallel: 0"),
        ("gitlab.yml", "junit: faultline-out/whole/junit.xml", "junit: {file: faultline-out/whole/junit.xml}"),
        ("gitlab.yml", "  script:\n    - mkdir -p faultline-out/base", "  scripts:\n    - mkdir -p faultline-out/base"),
    ],
)
def test_a_broken_workflow_is_noticed(root: Path, path: str, whole: str, broken: str) -> None:
    text = (root / "harness" / "faultline" / "cli" / "starter" / path).read_text()
    assert whole in text
    schema = "github-workflows" if path == "github.yml" else "gitlab-ci"
    assert complaints(text.replace(whole, broken, 1), schema)

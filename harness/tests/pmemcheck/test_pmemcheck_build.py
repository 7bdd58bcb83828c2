# SPDX-License-Identifier: Apache-2.0
"""ci/pmemcheck.sh. The checkout here is a small one: its build takes no ten minutes, and can be told to fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from command_line import assert_one_clear_line

VALGRIND = '#!/bin/sh\n[ "$1 $2 $3" = "--tool=pmemcheck -q true" ]\n'
CONFIGURE = r"""#!/bin/sh
[ "$2" = --enable-only64bit ] || exit 1
prefix=${1#--prefix=}
printf 'all:\n\ttouch built\ninstall:\n\tmkdir -p %s/bin\n\tcp vg %s/bin/valgrind\n' "$prefix" "$prefix" >Makefile
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "pmemcheck").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "large").touch()
    (folder / "pmemcheck" / "pmc_main.c").touch()
    for name, text in (
        ("autogen.sh", f"#!/bin/sh\ncat >configure <<'E'\n{CONFIGURE}E\nchmod +x configure\n"),
        ("vg", VALGRIND),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run(root: Path, *words: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(root / "ci" / "pmemcheck.sh"), *map(str, words)], capture_output=True, text=True, check=False
    )


def test_a_copy_is_built_and_the_checkout_stays_as_it_is(root: Path, tmp_path: Path, checkout: Path) -> None:
    before = sorted(checkout.rglob("*"))
    prefix = tmp_path / "prefix"
    done = run(root, checkout, prefix)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"built: export PMEMCHECK_VALGRIND={prefix}/bin/valgrind\n"
    assert sorted(checkout.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "prefix"], "copy and log are gone"


@pytest.mark.parametrize(
    ("file", "text", "step"),
    [
        ("autogen.sh", "#!/bin/sh\necho no aclocal >&2\nexit 1\n", "autogen.sh"),
        ("vg", "#!/bin/sh\necho no such tool >&2\nexit 1\n", "its first run"),
    ],
)
def test_a_step_that_fails_is_named_and_its_log_is_kept(
    root: Path, tmp_path: Path, checkout: Path, file: str, text: str, step: str
) -> None:
    (checkout / file).write_text(text)
    done = run(root, checkout, tmp_path / "prefix")
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()[-2:]
    assert error == f"error: {step} failed"
    assert f"{tmp_path}/prefix.log" in hint
    assert text.split("echo ")[1].split(" >&2")[0] in (tmp_path / "prefix.log").read_text()
    assert_one_clear_line(run(root, checkout, tmp_path / "prefix"), 2, "prefix.build", "something is there")


def test_bad_input_is_refused_in_one_line(root: Path, tmp_path: Path, checkout: Path) -> None:
    assert_one_clear_line(run(root, checkout), 2, "two arguments")
    assert_one_clear_line(run(root, tmp_path, tmp_path / "prefix"), 2, str(tmp_path), "pmc_main.c", "checkout")
    assert_one_clear_line(run(root, checkout, checkout / "prefix"), 2, "in the checkout")
    assert_one_clear_line(run(root, checkout, tmp_path / "a prefix"), 2, "space")
    (tmp_path / "file").touch()
    assert_one_clear_line(run(root, checkout, tmp_path / "file" / "prefix"), 2, "cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "file"]

# SPDX-License-Identifier: Apache-2.0
"""Figures of wear against hand-computed cases, slow definitions and properties; the gate; the pictures."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.base.errors import BadInputError
from faultline.wear import counting, figures, page, pictures
from faultline.wear.figures import AllocatorWear, Distribution, Medium, Setting, Wear, distribution_of, lifetime_of

SETTING = Setting("uniform:10:4096", 100, 1, "key", 100, 64, 1 << 21, 16)


def of(*writes: int) -> Distribution:
    return distribution_of(numpy.array(writes, dtype="<u8"))


def test_figures_of_a_few_lines_are_those_worked_out_by_hand() -> None:
    """1, 1, 2, 4: mean 2, deviations 1 1 0 2 (squares 6 / 4), pairs' mean difference 20 / 16."""
    found = of(1, 4, 0, 1, 2)
    assert (found.lines, found.total, found.maximum, found.mean, found.p99) == (4, 8, 4, 2.0, 4)
    assert found.variation == pytest.approx(math.sqrt(1.5) / 2)
    assert found.gini == pytest.approx(20 / 16 / (2 * 2))
    assert found.histogram == [(1, 2), (2, 1), (4, 1)]


def test_equal_lines_have_no_spread_and_one_line_is_equal_to_itself() -> None:
    for found in (of(7), of(3, 3, 3)):
        assert (found.variation, found.gini) == (0, 0)
        assert found.maximum == found.mean == found.p99


def test_p99_is_exceeded_by_one_percent_of_the_lines() -> None:
    assert of(*range(1, 101)).p99 == 99
    assert of(*range(1, 102)).p99 == 100
    assert of(*[1] * 99, 50).p99 == 1
    assert of(*[1] * 98, 50, 50).p99 == 50


def test_nothing_written_is_all_zero() -> None:
    assert of(0, 0) == Distribution(0, 0, 0, 0.0, 0, 0.0, 0.0, [])


@given(st.lists(st.integers(0, 50) | st.integers(0, 10**6), max_size=60))
def test_figures_are_their_definitions(writes: list[int]) -> None:
    found = of(*writes)
    left = [each for each in writes if each]
    assert (found.lines, found.total, found.maximum) == (len(left), sum(left), max(left, default=0))
    assert sum(value * lines for value, lines in found.histogram) == found.total
    assert sum(lines for _, lines in found.histogram) == found.lines
    if not left:
        return
    mean = Fraction(sum(left), len(left))
    variance = sum((each - mean) ** 2 for each in left) / len(left)
    difference = Fraction(sum(abs(a - b) for a in left for b in left), len(left) ** 2)
    assert found.mean == pytest.approx(float(mean))
    assert found.variation == pytest.approx(math.sqrt(variance) / float(mean), abs=1e-9)
    assert found.gini == pytest.approx(float(difference / (2 * mean)), abs=1e-9)
    assert 0 <= found.gini < 1
    assert sum(each <= found.p99 for each in left) * 100 >= 99 * len(left)
    assert sum(each < found.p99 for each in left) * 100 < 99 * len(left)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(2, 9))
def test_spread_does_not_depend_on_how_long_the_workload_is(writes: list[int], times: int) -> None:
    one, other = of(*writes), of(*(times * each for each in writes))
    assert other.gini == pytest.approx(one.gini, abs=1e-9)
    assert other.variation == pytest.approx(one.variation, abs=1e-9)
    assert other.maximum == times * one.maximum


def test_lifetimes_are_what_the_docstring_says() -> None:
    """100 operations write 8 times, one line 4 times; 1024 bytes are 16 lines. A million writes a cell: 250,000 runs,
    or, levelled, 16 million writes in all: 2 million runs."""
    found = lifetime_of(of(1, 1, 2, 4), 100, 64, Medium(1e6, 1024))
    assert found.unlevelled == 25e6
    assert found.levelled == 200e6
    assert lifetime_of(of(), 100, 64, Medium(1e6, 1024)) == figures.Lifetime(None, None)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=16))
def test_levelling_never_shortens_a_life(writes: list[int]) -> None:
    found = lifetime_of(of(*writes), 10, 64, Medium(1e8, 1024))
    assert found.unlevelled is not None
    assert found.levelled is not None
    assert found.levelled >= found.unlevelled * (1 - 1e-12)


# ---- the gate ------------------------------------------------------------------------------------------------------------


def allocator(name: str, stores: Distribution, write_backs: Distribution) -> AllocatorWear:
    lifetimes = {
        view: lifetime_of(each, 100, 64, Medium(1e8, 1 << 30))
        for view, each in (("stores", stores), ("write_backs", write_backs))
    }
    line = figures.HotLine(
        "heap+0x40", 5, 2, [figures.WriteSite("f(int) (a.c:1) < g (a.c:2) < h (a.c:3) < main (a.c:4)", 5)]
    )
    return AllocatorWear(
        name, "build", "", True, 50, 50, 0, 9, 20, 3, 3, {"flushed": 2}, False, stores, write_backs, lifetimes, {}, [line]
    )  # fmt: skip


def sample(*stores: int) -> Wear:
    names = ("one", "two")
    entries = [allocator(name, of(*(each + index for each in stores)), of(1, 2)) for index, name in enumerate(names)]
    for entry in entries:
        entry.ratios = figures.ratios(entry, entries[0])
    return Wear(1, SETTING, 1e8, 1 << 30, "one", entries)


def test_growth_beyond_the_tolerance_is_named() -> None:
    before, now = figures.protected_of(sample(10, 90)), sample(10, 96)
    assert figures.growth(before, now, 0.07) == []
    assert figures.growth(before, now, 0.06) == [
        "one: maximum stores 90 to 96 (+6.7 %)",
        "two: maximum stores 91 to 97 (+6.6 %)",
    ]
    assert figures.growth(before, sample(5, 50), 0) == []


def test_an_allocator_that_refuses_more_does_not_pass_for_writing_less() -> None:
    before, now = figures.protected_of(sample(10, 90)), sample(5, 50)
    now.allocators[1].failed = 3
    assert figures.growth(before, now, 9.0) == ["two: failed allocations 0 to 3, so less is written"]


def test_the_file_of_protect_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_bytes(msgspec.json.encode(figures.protected_of(sample(1, 2))))
    assert figures.read_protected(path) == figures.protected_of(sample(1, 2))


def test_what_does_not_compare_is_refused(tmp_path: Path) -> None:
    before = figures.protected_of(sample(1, 2))
    for changed, words in (
        ({"workload_key": "other", "seed": 2}, "workload uniform:10:4096 --ops 100 --seed 1, here .* --seed 2"),
        ({"line_bytes": 128}, "lines of 64 bytes, here 128"),
        ({"cache_ways": 8}, "a cache of 2097152 bytes and 16 ways, here 2097152 bytes and 8 ways"),
    ):
        with pytest.raises(BadInputError, match=words):
            figures.check_comparable(tmp_path, before, msgspec.structs.replace(SETTING, **changed), ["one"])
    with pytest.raises(BadInputError, match="has no three, it has one, two"):
        figures.check_comparable(tmp_path, before, SETTING, ["one", "three"])
    figures.check_comparable(tmp_path, before, SETTING, ["two"])


def test_a_wear_json_without_what_pictures_need_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wear.json"
    for broken in (msgspec.structs.replace(sample(1), allocators=[]), sample(1)):
        for each in broken.allocators:
            each.lifetimes.pop("stores")
        path.write_bytes(msgspec.json.encode(broken))
        with pytest.raises(BadInputError, match="expected allocators, each with lifetimes of both views"):
            figures.read_wear(path)
    path.write_bytes(msgspec.json.encode(sample(1)))
    assert figures.read_wear(path) == sample(1)


def test_small_sizes_are_not_rounded_to_nothing() -> None:
    small = msgspec.structs.replace(sample(1, 2), capacity_bytes=4096)
    assert "spread evenly over 0.00390625 MiB" in page.notes_of(small)[0]
    assert "spread evenly over 1,024 MiB" in page.notes_of(sample(1, 2))[0]


# ---- pictures and page ---------------------------------------------------------------------------------------------------


def test_pictures_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        assert [path.name for path in pictures.write(sample(1, 2, 500), folder, ["png", "svg"])] == [
            "wear.png",
            "wear.svg",
        ]
    for name in ("wear.png", "wear.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg = (tmp_path / "a" / "wear.svg").read_text()
    assert "<dc:date>" not in svg
    assert all(word in svg for word in ("one", "two", "write-backs of a line", "uniform:10:4096"))


def test_axes_are_logarithmic_only_where_writes_spread() -> None:
    for stores, scale in (((1, 2, 3), "linear"), ((1, 2, 500), "log")):
        axes = pictures.overview(sample(*stores)).axes
        assert axes[0].get_xscale() == scale
        assert axes[2].get_xscale() == "linear", "write-backs are 1 and 2"


def test_a_picture_has_every_line_and_none_more() -> None:
    axes = pictures.overview(sample(1, 2, 2, 500)).axes
    bars = [patch.get_data().values.sum() for patch in axes[0].patches]
    empty = [
        numpy.count_nonzero(patch.get_data().values == pictures.FLOOR) * pictures.FLOOR for patch in axes[0].patches
    ]
    assert [bar - rest for bar, rest in zip(bars, empty, strict=True)] == pytest.approx([4, 4])
    shares = axes[1].get_lines()[0]
    assert list(shares.get_xdata()) == [1, 2, 500]
    assert list(shares.get_ydata()) == pytest.approx([1, 0.75, 0.25])


def test_formats_are_checked() -> None:
    assert counting.read_formats("svg,png,svg") == ["svg", "png"]
    with pytest.raises(BadInputError, match="--format gif: no such picture format"):
        counting.read_formats("png,gif")


def test_a_page_takes_its_colours_from_the_page() -> None:
    shown = page.page_of(sample(1, 2, 500))
    assert shown.picture.startswith("<svg viewBox=")
    assert not any(colour in shown.picture for colour in (pictures.INK, pictures.SOFT, pictures.CARD))
    assert "var(--ink)" in shown.picture
    assert [row.maximum for row in shown.rows["stores"]] == ["500", "501"]


def test_places_are_short_enough_to_read() -> None:
    assert page.short_place(sample(1).allocators[0].hottest[0].sites[0].place) == "f (a.c:1) < g (a.c:2) < h (a.c:3)"
    assert page.short_place("(anonymous namespace)::allocate(unsigned int) (p.cpp:6)") == "allocate (p.cpp:6)"
    assert page.short_place("libc.so.6+0x123") == "libc.so.6+0x123"


@pytest.mark.parametrize(("operations", "words"), [(None, "-"), (1.0, "1.0e0"), (99.6e6, "1.0e8"), (4.54e7, "4.5e7")])
def test_amounts_have_two_digits(operations: float | None, words: str) -> None:
    assert page.amount(operations) == words


def test_commands_without_pictures_load_no_library_for_them() -> None:
    script = "import sys, faultline.cli; print({'numpy', 'matplotlib'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"

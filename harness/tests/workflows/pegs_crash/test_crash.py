import pytest


@pytest.mark.crash_consistent(allocator="pegs", workload=["create", "smoke"])
def test_no_crash_takes_anything_off_its_peg() -> None:
    """Each workload is a test of its own."""

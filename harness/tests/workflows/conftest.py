# SPDX-License-Identifier: Apache-2.0
"""The example repository has a suite of its own, which runs in copies of it."""

from __future__ import annotations

collect_ignore = ["pegs", "pegs_crash"]

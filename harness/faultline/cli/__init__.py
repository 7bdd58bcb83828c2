# SPDX-License-Identifier: Apache-2.0
"""The command `faultline`."""

from faultline.cli.entry import main

__all__ = ["main"]

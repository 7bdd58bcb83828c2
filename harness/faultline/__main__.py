# SPDX-License-Identifier: Apache-2.0
"""python -m faultline: the command, where only this Python is known."""

from faultline.cli import main

raise SystemExit(main())

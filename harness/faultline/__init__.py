# SPDX-License-Identifier: Apache-2.0
"""faultline: crash-consistency testing and fault injection for persistent-memory allocators. ARCHITECTURE.md is the map."""

__version__ = "0.1.0"

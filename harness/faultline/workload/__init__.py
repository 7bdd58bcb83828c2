# SPDX-License-Identifier: Apache-2.0
"""Workloads: the file format, the generators, and how a name becomes a workload."""

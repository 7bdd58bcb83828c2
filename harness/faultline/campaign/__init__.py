# SPDX-License-Identifier: Apache-2.0
"""Many cells: the matrix, running them, their results in a database, what is known before."""

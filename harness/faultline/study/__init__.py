# SPDX-License-Identifier: Apache-2.0
"""What is done with one finding or one trace beyond a verdict: replay, repairs, the smallest witness, mutation, bisection."""

# SPDX-License-Identifier: Apache-2.0
"""One cell on its way: builds, the trace, the engine, and the machine that they run on."""

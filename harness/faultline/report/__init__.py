# SPDX-License-Identifier: Apache-2.0
"""What people and machines read of a campaign: terminal, HTML page, JUnit, SARIF, JSON."""

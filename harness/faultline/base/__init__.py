# SPDX-License-Identifier: Apache-2.0
"""What every part uses: errors and exit codes, child processes, the cache, the configuration files. It imports no other package."""

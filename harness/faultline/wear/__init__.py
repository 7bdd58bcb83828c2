# SPDX-License-Identifier: Apache-2.0
"""How often each line of memory is written: measuring, figures, pictures, the page."""

# SPDX-License-Identifier: Apache-2.0
"""What people see: progress on stderr, tables on stdout, errors as one line and a hint. No colour and no bars when the stream is
not a terminal or NO_COLOR is set."""

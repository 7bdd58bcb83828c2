/* SPDX-License-Identifier: Apache-2.0 */
/* allocator.toml must name a file: all of it is in adapter.c. */
typedef int nothing;

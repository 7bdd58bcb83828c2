/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter is in adapter.c. */
extern int nothing;

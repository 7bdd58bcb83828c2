/* SPDX-License-Identifier: Apache-2.0
 *
 * whole.cpp - all sources in one translation unit: what they include is most of the time that they take to compile, and a campaign
 * builds each mutant twice.
 */
#include "src/files.cpp"
#include "src/segments.cpp"
#include "src/small.cpp"
#include "src/tree.cpp"
#include "src/big.cpp"
#include "src/heap.cpp"

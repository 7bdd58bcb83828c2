/* SPDX-License-Identifier: Apache-2.0
 *
 * All of pbit is in its header: adapter and client compile it with the same mutant. */
#include "pbit.h"

/* SPDX-License-Identifier: Apache-2.0
 *
 * header.c - headers and their checksum.
 *
 * The checksum is CRC32C over size and state, position, and of free blocks the wait word (§3.2). Position is the line's number, so
 * that a header that was copied elsewhere with its block is incorrect there.
 *
 * Which of the two CRC functions is taken is decided once, when the library is loaded (§7.1; instead of the paper's one-byte XOR for
 * processors without the instruction, so that a heap may be moved between them).
 */
#include "types.h"

#define POLYNOMIAL 0x82f63b78u /* CRC32C (Castagnoli), reflected: what the instruction computes */

static uint32_t table[256];
static uint32_t (*chosen)(uint32_t crc, uint64_t word) = nvmalloc_crc32c_table;

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, uint64_t word) {
    return (uint32_t)__builtin_ia32_crc32di(crc, word);
}
#endif

__attribute__((constructor)) static void choose(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        table[byte] = crc;
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        chosen = crc32c_instruction;
#endif
}

uint32_t nvmalloc_crc32c_table(uint32_t crc, uint64_t word) {
    for (int byte = 0; byte < 8; byte++, word >>= 8)
        crc = crc >> 8 ^ table[(crc ^ word) & 0xff];
    return crc;
}

uint32_t nvmalloc_crc32c(uint32_t crc, uint64_t word) { return chosen(crc, word); }

#if defined(MUTANT_POSITION_IS_ADDRESS)
uint32_t nvmalloc_first_position; /* of the heap that was mapped last */
#endif

static uint32_t checksum(uint32_t line, uint32_t lines, enum nvmalloc_state state, uint64_t wait) {
#if defined(MUTANT_CHECKSUM_WITHOUT_POSITION)
    line = 0;
#elif defined(MUTANT_POSITION_IS_ADDRESS)
    line += nvmalloc_first_position;
#endif
    uint32_t crc = nvmalloc_crc32c(nvmalloc_crc32c(~0u, nvmalloc_word(0, lines, state)), line);
    return state == NVMALLOC_FREE ? nvmalloc_crc32c(crc, wait) : crc;
}

uint64_t nvmalloc_make_word(uint32_t line, uint32_t lines, enum nvmalloc_state state, uint64_t wait) {
    return nvmalloc_word(checksum(line, lines, state, wait), lines, state);
}

/* copy: 0 or 1, which root line it is for. */
uint64_t nvmalloc_make_root(uint32_t line, uint32_t copy) {
    return nvmalloc_root_word(nvmalloc_crc32c(nvmalloc_crc32c(~0u, line), copy), line);
}

bool nvmalloc_checksum_fits(uint32_t line, const struct nvmalloc_header *header) {
    uint64_t word = nvmalloc_load(&header->word);
    enum nvmalloc_state state = nvmalloc_word_state(word);
    uint32_t lines = nvmalloc_word_lines(word);
    if (state < NVMALLOC_ALLOCATED || lines == 0)
        return false;
    uint64_t wait = state == NVMALLOC_ALLOCATED ? 0 : nvmalloc_load(&header->wait);
    if (state != NVMALLOC_ALLOCATED && (state == NVMALLOC_DAMAGED) != (wait == NVMALLOC_WAIT_OF_DAMAGED))
        return false;
    return nvmalloc_word_checksum(word) == checksum(line, lines, state, wait);
}

bool nvmalloc_is_correct(const struct nvmalloc_heap *heap, uint32_t line) {
    const struct nvmalloc_header *header = nvmalloc_header_at(heap, line);
    return nvmalloc_checksum_fits(line, header) && nvmalloc_word_lines(nvmalloc_load(&header->word)) <= heap->line_count - line;
}

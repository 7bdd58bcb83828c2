/* SPDX-License-Identifier: Apache-2.0
 *
 * target.h - the traced process, as the rest of the tracer reaches it. In the Pin tool that is the tracer's own process; in the
 * native driver it is another one. Nothing but this and the two programs (tool.cpp, drive.cpp) knows which.
 */
#ifndef FAULTLINE_PIN_TARGET_H
#define FAULTLINE_PIN_TARGET_H

#include <cstddef>
#include <cstdint>
#include <string>

class Target {
  public:
    virtual ~Target() {}
    /* Copies bytes of the target's memory; false if they cannot all be read. */
    virtual bool read(uint64_t address, void *to, size_t bytes) const = 0;
    /* "/proc/self" or "/proc/NUMBER". */
    virtual std::string proc() const = 0;
    /* The target's number, as its own getpid() says. */
    virtual int number() const = 0;
    /* A read of this descriptor, or a write to it, would not wait. */
    virtual bool is_ready(int descriptor, bool for_writing) const = 0;

    /* A text of the target, up to the longest name; false if it cannot be read. */
    bool read_text(uint64_t address, std::string *text) const;
};

#endif

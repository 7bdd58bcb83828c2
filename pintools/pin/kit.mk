# SPDX-License-Identifier: Apache-2.0
#
# kit.mk - the part of the Makefile that needs a Pin kit in PIN_ROOT. Compilers, flags, libraries are what the kit's own Makefiles say.

ifeq ($(wildcard $(PIN_ROOT)/source/tools/Config/makefile.config),)
$(error PIN_ROOT=$(PIN_ROOT) is no Pin kit: no source/tools/Config/makefile.config is there; unpack a kit and set PIN_ROOT to its folder)
endif

CONFIG_ROOT := $(PIN_ROOT)/source/tools/Config
TARGET := intel64
include $(CONFIG_ROOT)/makefile.config

TOOL_OBJECTS := $(PARTS:%=$(OUT)/tool-objects/%.o) $(OUT)/tool-objects/tool.o
# The kit's -Werror is for the compilers that it was made for.
KIT_FLAGS := $(filter-out -Werror,$(TOOL_CXXFLAGS)) -std=c++11 -faligned-new
# Of a kit without its largest files: Pin and XED themselves.
FOUND_LIBRARIES := $(filter-out -lpin% -lxed,$(TOOL_LIBS))

.DEFAULT_GOAL := tool

tool: $(OUT)/faultline.so

objects: $(TOOL_OBJECTS)

$(OUT)/faultline.so: $(TOOL_OBJECTS)
	$(LINKER) $(TOOL_LDFLAGS) -o $@ $^ $(TOOL_LPATHS) $(TOOL_LIBS)

# As much of the link as can be done without Pin and XED; what stays open is in the second file.
partial: $(OUT)/partial.so $(OUT)/open-symbols

$(OUT)/partial.so: $(TOOL_OBJECTS)
	$(LINKER) $(TOOL_LDFLAGS) -o $@ $^ $(TOOL_LPATHS) $(FOUND_LIBRARIES)

$(OUT)/open-symbols: $(OUT)/partial.so
	nm --dynamic --defined-only --format=just-symbols $(PIN_ROOT)/$(TARGET)/runtime/pincrt/*.so | sort -u >$@.known
	nm --dynamic --undefined-only --format=just-symbols $< | sort -u | comm -23 - $@.known | c++filt >$@

$(OUT)/tool-objects/%.o: %.cpp $(HEADERS) Makefile kit.mk
	@mkdir -p $(@D)
	$(CXX) $(KIT_FLAGS) -c -o $@ $<

.PHONY: tool objects partial

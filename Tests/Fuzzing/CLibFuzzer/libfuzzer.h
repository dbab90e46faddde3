// The functions of libFuzzer that the fuzzer calls (llvm.org/docs/LibFuzzer.html, "Using libFuzzer as a library"); the
// toolchain has the library, and no header.
#ifndef CLIBFUZZER_LIBFUZZER_H
#define CLIBFUZZER_LIBFUZZER_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*test)(const uint8_t *bytes, size_t count));
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t count, size_t limit);

#endif

// The compiler half of libr3core: device bitcode in, optimised bitcode or PTX out.
// C ABI, bytes only: no LLVM object and no exception crosses it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define R3_API __attribute__((visibility("default")))

// Bytes owned by libr3core; give them back with r3_bytes_free. `data` is NUL-terminated past `size`.
typedef struct r3_bytes {
  char* data;
  size_t size;
} r3_bytes;

R3_API void r3_bytes_free(r3_bytes* bytes);

typedef struct r3_target {
  const char* cpu;       // "sm_90"
  const char* features;  // "+ptx88"; "" lets LLVM choose
  int codegen_level;     // 0..3, the code generator's own -O
} r3_target;

// Every call below returns 0, or 1 with a one-line message in *error.
// A pass may also abort, exit or loop: call them in a child process (child.h) unless the pipeline is trusted.

// "22.1.8": the LLVM this library was built with.
R3_API const char* r3_llvm_version(void);

// Registers the NVPTX and native targets. Call once, before any fork.
R3_API void r3_compile_init(void);

// Parses `passes` against LLVM's textual pipeline grammar without running anything.
R3_API int r3_check_pipeline(const char* passes, r3_bytes* error);

// JSON of every pass that PassBuilder knows: {"module": ["globalopt", …], "function": […], …} plus parameterised ones.
R3_API int r3_list_passes(r3_bytes* json, r3_bytes* error);

// Keeps `kernel` and what it reaches: internalises the rest, drops dead code, resolves __nvvm_reflect, and marks
// the module's writable variables as used, so that no pass may remove or reshape what the recording holds.
R3_API int r3_prepare(const char* bitcode, size_t size, const char* kernel, r3_bytes* prepared, r3_bytes* error);

// Runs a textual pass pipeline with an NVPTX TargetMachine attached (without one, passes miscompile barriers).
// `options` are LLVM command-line options ("-unroll-threshold=400"); they are process-global, so give them only in a
// child.
R3_API int r3_optimize(const char* bitcode, size_t size, const char* passes, const r3_target* target,
                       const char* const* options, size_t n_options, r3_bytes* optimized, r3_bytes* error);

// Lowers (optimised) bitcode to PTX.
R3_API int r3_codegen(const char* bitcode, size_t size, const r3_target* target, const char* const* options,
                      size_t n_options, r3_bytes* ptx, r3_bytes* error);

#ifdef __cplusplus
}
#endif

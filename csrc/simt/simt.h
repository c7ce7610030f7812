// The executing half of libr3core: device IR turned into host code that keeps CUDA's thread, warp and barrier
// semantics. C ABI, bytes only.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "compile/compile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct r3simt_module r3simt_module;

enum {
  R3SIMT_CHECK = 1,  // diagnose out-of-bounds and misaligned accesses (see r3simt_launch.regions)
  R3SIMT_COUNT = 2,  // count instructions and memory transactions (r3simt_result.counts)
};

// Gives a device variable its address. Called once per variable that the module defines, in the module's order.
// `initializer` holds `size` bytes. Must return an address valid for the module's life, or 0 to refuse.
// The callee stores the initial bytes where it wants them stored (a replay, whose memory is recorded, does not).
typedef uint64_t (*r3simt_place_variable)(void* user, const char* name, uint64_t size, uint64_t alignment,
                                          int is_constant, const void* initializer);

typedef struct r3simt_load_options {
  const char* passes;  // pipeline to run first, NULL when the bitcode is already optimised
  r3_target target;    // what `passes` optimises for, and what __CUDA_ARCH__-like queries see
  unsigned flags;      // R3SIMT_*
  r3simt_place_variable place_variable;
  void* user;
} r3simt_load_options;

// Parses, optimises, lowers and compiles a module. Kernels that cannot be lowered are refused by name at launch, not
// here.
R3_API int r3simt_load(const char* bitcode, size_t size, const r3simt_load_options* options, r3simt_module** module,
                       r3_bytes* error);
R3_API void r3simt_unload(r3simt_module* module);

typedef struct r3simt_parameter {
  uint32_t offset;  // in the packed parameter buffer, PTX layout
  uint32_t size;
  uint32_t alignment;
  uint32_t is_pointer;  // 1: a plain pointer, 0: a scalar, 2: an aggregate passed by value
} r3simt_parameter;

typedef struct r3simt_kernel_info {
  uint32_t n_parameters;
  const r3simt_parameter* parameters;
  uint32_t parameter_bytes;  // size of the packed buffer
  uint32_t static_shared;    // bytes
  uint32_t max_threads;      // __launch_bounds__, else 1024
  const char* refusal;       // NULL, or why the kernel cannot run here
} r3simt_kernel_info;

// NULL when the module has no such kernel. The result lives as long as the module.
R3_API const r3simt_kernel_info* r3simt_kernel(r3simt_module* module, const char* kernel);

typedef struct r3simt_region {
  uint64_t base;
  uint64_t size;
} r3simt_region;

typedef struct r3simt_launch {
  const char* kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared;
  const void* parameters;        // packed, parameter_bytes long
  uint32_t workers;              // threads that run blocks; 0: one per core
  const r3simt_region* regions;  // what global memory a kernel may touch, sorted by base; used with R3SIMT_CHECK
  size_t n_regions;
  int output_fd;    // where printf goes; 1 is stdout
  int cooperative;  // all blocks resident at once
} r3simt_launch;

typedef enum r3simt_status {
  R3SIMT_OK = 0,
  R3SIMT_ASSERT,           // assert() failed
  R3SIMT_TRAP,             // __trap() or an unreachable instruction
  R3SIMT_ILLEGAL_ADDRESS,  // out of bounds, or a host fault
  R3SIMT_MISALIGNED,
  R3SIMT_DEADLOCK,  // a barrier or warp operation that can never complete (divergent barrier)
  R3SIMT_STACK_OVERFLOW,
  R3SIMT_UNSUPPORTED,     // the kernel uses something that is refused by name
  R3SIMT_INVALID_LAUNCH,  // geometry or shared memory beyond the limits
} r3simt_status;

// Instruction classes of the counts. An issue is one instruction issued for one warp.
enum r3simt_class {
  R3SIMT_INT,
  R3SIMT_FP32,
  R3SIMT_FP64,
  R3SIMT_FP16,
  R3SIMT_SFU,
  R3SIMT_CONVERT,
  R3SIMT_INT_SLOW,
  R3SIMT_FP_SLOW,
  R3SIMT_CONTROL,
  R3SIMT_GLOBAL_LOAD,
  R3SIMT_GLOBAL_STORE,
  R3SIMT_SHARED_LOAD,
  R3SIMT_SHARED_STORE,
  R3SIMT_LOCAL,
  R3SIMT_CONSTANT,
  R3SIMT_ATOMIC,
  R3SIMT_BARRIER,
  R3SIMT_WARP,
  R3SIMT_CALL,
  R3SIMT_CLASSES
};
R3_API const char* r3simt_class_name(int instruction_class);

typedef struct r3simt_counts {
  uint64_t issues[R3SIMT_CLASSES];  // per warp
  uint64_t threads;                 // threads that ran
  uint64_t warps;
  uint64_t lane_instructions;      // per thread, all classes
  uint64_t global_requests;        // warp-level accesses to global memory
  uint64_t global_sectors;         // 32-byte sectors those touched
  uint64_t global_unique_sectors;  // distinct 32-byte sectors of the whole launch
  uint64_t shared_requests;
  uint64_t shared_wavefronts;  // passes over the 32 four-byte banks
  uint64_t atomic_conflicts;   // serialised passes of atomics on one address within a warp
} r3simt_counts;

typedef struct r3simt_result {
  r3simt_status status;
  uint32_t block[3];  // where it went wrong
  uint32_t thread[3];
  uint64_t address;      // the faulting address, if any
  char message[1024];    // one line: what, kernel, block, thread
  char warning[1024];    // one line or empty: e.g. a barrier reached from different places
  r3simt_counts counts;  // with R3SIMT_COUNT
} r3simt_result;

// Runs a kernel to its end. Returns the status. Deterministic: threads of a block run in a fixed order; blocks run in
// parallel unless the kernel has order-sensitive atomics, in which case they run in order.
R3_API r3simt_status r3simt_run(r3simt_module* module, const r3simt_launch* launch, r3simt_result* result);

#ifdef __cplusplus
}
#endif

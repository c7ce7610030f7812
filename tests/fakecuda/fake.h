// A CUDA driver whose device is this process: device memory is host memory, a kernel is a C++ function. One lock is
// held in every call; what a stream holds is run at once, in order, unless it waits for a value in memory.
//
// Stricter than a GPU where that helps tests: device memory faults when the host touches it. Environment:
//   FAKECUDA_DEVICES  how many devices there are [1]
//   FAKECUDA_MEMORY   bytes of each [8 GiB]
//   FAKECUDA_ARCH     compute capability [9.0]
//   FAKECUDA_NO_VMM   set: no virtual memory management
//   FAKECUDA_FAIL     "cuMemCreate=2,cuMemAlloc_v2:3=2": the call (from the third one on) fails with this code
//   FAKECUDA_LOG      a file: one line for each launch that runs, "kernel gx gy gz bx by bz shared"
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fake {

inline constexpr std::size_t page = 2 << 20;  // of device memory: the granularity of mappings and of faults

struct Failure {
  CUresult code;
};

inline void require(bool condition, CUresult code) {
  if (!condition) throw Failure{code};
}

// Kernels (kernels.cpp) -------------------------------------------------------------------------------------------

struct Kernel {
  std::vector<std::size_t> sizes;  // of its parameters, as C++ has them
  void (*run)(const void* function, const std::byte* arguments);
  const void* function;
};

const Kernel* find_kernel(const std::string& name);  // null: none of that name

// For kernels, while they run.
void* variable(const char* name);        // of the module that the running kernel is from
[[noreturn]] void fault(CUresult code);  // the kernel ends, and so does its context
[[noreturn]] void hang();                // the kernel never ends
bool on_device();                        // whether this thread runs device code

// Modules (image.cpp, module.cpp) ------------------------------------------------------------------------------

struct Parameter {
  std::size_t offset, size;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t buffer = 0;  // bytes of the packed arguments
  int max_threads = 1024;
  std::size_t shared = 0;
  std::size_t instructions = 0;
};

struct Global {
  std::string name;
  std::size_t size;
  std::vector<std::byte> initial;
  bool constant;
};

struct Image {
  std::vector<Entry> entries;
  std::vector<Global> globals;
};

std::shared_ptr<const Image> read_image(const void* data);  // PTX, cubin, fat binary (or its wrapper); throws Failure

struct Context;
struct Module;

struct Function {
  Module* module;
  const Entry* entry;
  int dynamic_shared = 48 << 10;
  int carveout = -1;
};

struct Module {
  Context* context;
  std::shared_ptr<const Image> image;
  std::map<std::string, std::unique_ptr<Function>> functions = {};
  std::map<std::string, CUdeviceptr> variables = {};
};

struct Library;

struct LibraryKernel {
  Library* library;
  const Entry* entry;
};

struct Library {
  std::shared_ptr<const Image> image;
  std::map<std::string, std::unique_ptr<LibraryKernel>> kernels = {};
  std::map<Context*, Module*> modules = {};
};

Module* load(Context& context, std::shared_ptr<const Image> image);
void unload(Module* module);
Module* module_of(Library& library, Context& context);
Function* find_function(Module& module, std::string_view name);  // null: none
// A CUfunction, or a CUkernel in its place (only where kernels are allowed).
Function& function_of(CUfunction handle, Context& context, bool kernels);

// Streams (stream.cpp) --------------------------------------------------------------------------------------------

using Operation = std::function<bool()>;  // false: cannot go on yet, ask again

struct Graph {
  std::vector<Operation> nodes;
};

struct Queued {
  std::uint64_t number;
  Operation operation;
};

struct Stream {
  Context* context;
  bool blocking = true;  // waits for the legacy stream and it for this
  int priority = 0;
  std::deque<Queued> queue = {};
  std::shared_ptr<Graph> capture = {};
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalidated = false;
  std::uint64_t capture_id = 0;
};

struct Event {
  Context* context;
  unsigned flags;
  bool recorded = false, done = true;
  double time = 0;  // seconds
};

Stream& stream_of(CUstream handle, Context& context);
// Into the stream, or the graph that it captures. Then runs what can be run.
void enqueue(Stream& stream, Operation operation);
void progress(Context& context);
void synchronize(Context& context, const std::function<bool()>& done);  // throws the fault that it meets
bool idle(const Context& context);
void forbid_in_capture();  // for calls that are unsafe while a stream captures

// Memory (blocks.cpp) ---------------------------------------------------------------------------------------------

enum class Kind { device, pooled, variable, mapped, managed, host, registered };

struct Physical {
  int descriptor;
  std::size_t size;
  int device;
  int mappings = 0;
  bool released = false;
};

struct Block {
  CUdeviceptr base;
  std::size_t size;    // as asked for
  std::size_t extent;  // as mapped
  Kind kind;
  Context* context;
  int device;
  unsigned flags = 0;
  unsigned long long id = 0;
  Physical* physical = nullptr;
  std::vector<int> access = {};  // of a mapped block: PROT_* by device
};

inline constexpr int readable = 1, writable = 3;  // as mprotect takes them

inline std::size_t round_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }
inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

unsigned long long next_id();            // of a block
Block* find_block(CUdeviceptr address);  // null: none contains it
bool occupied(CUdeviceptr from, std::size_t size);
// Throws Failure unless blocks of memory that may be read (written) make up [from, from + size).
void require_range(Context& context, CUdeviceptr from, std::size_t size, int access);
CUdeviceptr allocate(Context& context, std::size_t size, Kind kind);
void release(CUdeviceptr base);
void release_all(Context& context);

// Runs device code in this context, whose memory it may use. CUDA_SUCCESS, or what it did wrong; hung: it never ends.
CUresult run_on_device(Context& context, const std::function<void()>& body, bool* hung = nullptr);

// Contexts (context.cpp) ------------------------------------------------------------------------------------------

struct Context {
  int device;
  bool primary;
  int references = 0;
  unsigned flags = 0;
  bool dead = false;
  CUresult fault = CUDA_SUCCESS;   // what a kernel did, not yet reported
  CUresult sticky = CUDA_SUCCESS;  // reported: every later call fails with it
  std::set<Module*> modules = {};
  std::set<Stream*> streams = {};
  std::set<Event*> events = {};
  std::map<CUlimit, std::size_t> limits = {};
  Stream* legacy = nullptr;
};

struct State {
  std::recursive_mutex lock;
  bool initialised = false, deinitialised = false;
  int process = 0;
  std::uint64_t operations = 0;
  double clock = 0;  // seconds; kernels and copies advance it
  std::map<CUdeviceptr, Block> blocks;
  std::map<CUdeviceptr, std::size_t> reservations;
  std::set<Physical*> physical;
  std::vector<std::size_t> used;  // bytes by device
  std::set<Context*> contexts;
  std::vector<Context*> primary;  // by device
  std::set<Module*> modules;
  std::unordered_map<const void*, Function*> functions;
  std::set<Library*> libraries;
  std::unordered_map<const void*, LibraryKernel*> kernels;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<std::shared_ptr<Graph>> graphs, instances;
  std::unordered_map<std::string, int> calls;  // of the functions that FAKECUDA_FAIL names
};

State& state();
int device_count();
std::size_t device_memory();
Context* current();  // null: none
CUresult injected(const char* call);
void require_driver();  // initialised, and not in a child process

enum class Needs { nothing, driver, context };

// Every function of the API is one of these: under the lock, after the checks that the driver makes first.
template <typename Body>
CUresult call(Needs needs, Body body, const char* name = __builtin_FUNCTION()) {
  const std::lock_guard lock(state().lock);
  try {
    if (state().deinitialised) return CUDA_ERROR_DEINITIALIZED;
    if (needs != Needs::nothing) require_driver();
    if (needs == Needs::context) {
      require(current(), CUDA_ERROR_INVALID_CONTEXT);
      require(!current()->dead, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      require(current()->sticky == CUDA_SUCCESS, current()->sticky);
    }
    if (const CUresult code = injected(name)) return code;
    body();
    return CUDA_SUCCESS;
  } catch (const Failure& failure) {
    return failure.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

template <typename Body>
CUresult in_driver(Body body, const char* name = __builtin_FUNCTION()) {
  return call(Needs::driver, body, name);
}

template <typename Body>
CUresult in_context(Body body, const char* name = __builtin_FUNCTION()) {
  return call(Needs::context, [&] { body(*current()); }, name);
}

template <typename Set, typename Handle>
auto* checked(const Set& set, Handle handle) {  // the object behind a handle
  const auto found = set.find(reinterpret_cast<typename Set::value_type>(handle));
  require(found != set.end(), CUDA_ERROR_INVALID_HANDLE);
  return *found;
}

}  // namespace fake

#define R3_EXPORT extern "C" __attribute__((visibility("default")))

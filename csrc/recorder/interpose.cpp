// How the recorder gets between an application and libcuda: it is preloaded and answers for `dlsym` and
// cuGetProcAddress with its own functions where the driver's are asked for. Programs linked with libcuda find them by
// their names.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <string>

#include "recorder/aside.h"
#include "recorder/capture.h"
#include "recorder/hooks.h"

namespace r3::recorder {
namespace {

using Dlsym = void* (*)(void*, const char*);

enum class Streams { legacy, per_thread };

struct Hook {
  const char* base;
  const char* exported;
  int since;
  Streams streams;
  void* function;
  void** real;
};

Real functions;

const Hook hooks[] = {
#define R3_HOOK(base, exported, since, streams) \
  {#base,                                       \
   #exported,                                   \
   since,                                       \
   Streams::streams,                            \
   reinterpret_cast<void*>(&::exported),        \
   reinterpret_cast<void**>(&functions.exported.pointer)},
#include "recorder/hooks.def"
#undef R3_HOOK
};

// The C library's. Found by version, since the plain name is ours; the oldest version is there in every glibc.
Dlsym real_dlsym() noexcept {
  static std::atomic<Dlsym> found{nullptr};
  Dlsym function = found.load(std::memory_order_relaxed);
  if (!function) {
    for (const char* version : {"GLIBC_2.2.5", "GLIBC_2.34"}) {
      function = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", version));
      if (function) break;
    }
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

// Whether libcuda is in the process, and `functions` therefore filled. Never loads it. Without a lock: who asks may
// hold the dynamic linker's, which the look-ups take.
bool driver_loaded() noexcept {
  static std::atomic<bool> loaded{false};
  if (loaded.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library) {
    for (const Hook& hook : hooks) std::atomic_ref(*hook.real).store(real_dlsym()(library, hook.exported));
    loaded.store(true, std::memory_order_release);
  }
  dlerror();  // what we looked for in vain is nobody's business
  return library != nullptr;
}

const Hook* hook_named(const char* exported) noexcept {
  for (const Hook& hook : hooks) {
    if (std::strcmp(hook.exported, exported) == 0) return &hook;
  }
  return nullptr;
}

// What cuGetProcAddress means by these arguments. Null: something that the recorder does not replace.
const Hook* hook_for(const char* base, int version, cuuint64_t flags, const void* found) noexcept {
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const Hook* best = nullptr;
  for (const Hook& hook : hooks) {
    if (std::strcmp(hook.base, base) != 0) continue;
    if (*hook.real && *hook.real == found) return &hook;
    if (hook.since > version || (hook.streams == Streams::per_thread && !per_thread)) continue;
    if (!best || hook.since > best->since || (hook.since == best->since && hook.streams == Streams::per_thread)) {
      best = &hook;
    }
  }
  if (best && version > CUDA_VERSION) {  // perhaps with another signature
    say_once(std::string(base) + " of CUDA " + std::to_string(version / 1000) + "." +
             std::to_string(version % 1000 / 10) + " is newer than this recorder, which leaves it alone");
    return nullptr;
  }
  return best;
}

CUresult replace(CUresult code, const char* base, void** function, int version, cuuint64_t flags) noexcept {
  if (code != CUDA_SUCCESS || !base || !function || !*function || !recording()) return code;
  aside([&] {
    const Hook* hook = hook_for(base, version, flags, *function);
    if (hook && *hook->real) *function = hook->function;
  });
  return code;
}

}  // namespace

const Real& real() noexcept {
  driver_loaded();
  return functions;
}

bool active() noexcept { return recording() && !ours(); }

// The answer to dlsym(handle, name), or, where `jump` is set, who shall give it.
struct Answer {
  void* result;
  Dlsym jump;
};

extern "C" __attribute__((visibility("hidden"))) Answer r3_dlsym(void* handle, const char* name) noexcept {
  const Dlsym ask = real_dlsym();
  // RTLD_NEXT depends on who asks: another preloaded library, which gets what lies behind it.
  if (!name || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) return {nullptr, ask};
  const Hook* hook = hook_named(name);
  if (!hook) return {nullptr, ask};
  void* found = ask(handle, name);
  if (!found) return {nullptr, nullptr};
  if (found == hook->function) {  // our own name in the global scope
    if (driver_loaded()) return {recording() ? found : *hook->real, nullptr};
    return {ask(RTLD_NEXT, name), nullptr};  // what lies behind us; usually nothing, and dlerror() says so
  }
  if (recording() && driver_loaded() && found == *hook->real) found = hook->function;
  return {found, nullptr};
}

}  // namespace r3::recorder

using r3::recorder::real;

R3_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return r3::recorder::replace(real().cuGetProcAddress(symbol, function, version, flags), symbol, function, version,
                               flags);
}

R3_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult* status) {
  return r3::recorder::replace(real().cuGetProcAddress_v2(symbol, function, version, flags, status), symbol, function,
                               version, flags);
}

// dlsym: for every name but ours a jump to the C library's, which looks at its return address to see who asks.
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call r3_dlsym
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  test %rdx, %rdx
  jz 1f
  jmp *%rdx
1:
  ret
  .cfi_endproc
  .size dlsym, .-dlsym
  .popsection
)");

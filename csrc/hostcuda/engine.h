// libr3core, loaded at the first use: a program that launches no kernel needs no LLVM.
#pragma once
#include "simt/simt.h"

namespace r3::hostcuda {

// How this library compiles a module; the architecture is the module's own.
inline constexpr char passes[] = "default<O3>";
inline constexpr char features[] = "+ptx88";
inline constexpr int codegen_level = 3;

struct Engine {
  decltype(&r3simt_load) load;
  decltype(&r3simt_unload) unload;
  decltype(&r3simt_kernel) kernel;
  decltype(&r3simt_run) run;
  decltype(&r3_bytes_free) free_bytes;
};

// Throws std::runtime_error, with what to do, when there is no usable libr3core.so.
const Engine& engine();

}  // namespace r3::hostcuda

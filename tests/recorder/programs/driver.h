// The driver, as programs reach it. `linked`: by plain names, the program being linked with libcuda (R3_LINKED);
// otherwise `dlsym`, `lookup` (cuGetProcAddress_v2), `lookup_old` (cuGetProcAddress) or `lookup_per_thread`.
#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct Functions {
#define R3_FUNCTION(name) decltype(&::name) name;
#include "functions.def"
#undef R3_FUNCTION
};

#define R3_TEXT(name) R3_QUOTED(name)
#define R3_QUOTED(name) #name

[[noreturn]] inline void die(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::_Exit(3);
}

inline Functions find_functions() {
  Functions found;
#ifdef R3_LINKED
#define R3_FUNCTION(name) found.name = &::name;
#else
  const std::string how = std::getenv("REACH") ? std::getenv("REACH") : "dlsym";
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) die(dlerror());
  constexpr int version = 12090;  // of what cuda.h declares: some newer versions have other names there
  const auto find = [&](const char* base, const char* exported) {
    void* function = nullptr;
    if (how == "dlsym") {
      function = dlsym(library, exported);
    } else if (how == "lookup_old") {
      using LookUp = CUresult (*)(const char*, void**, int, cuuint64_t);
      const auto look_up = reinterpret_cast<LookUp>(dlsym(library, "cuGetProcAddress"));
      look_up(base, &function, version, CU_GET_PROC_ADDRESS_DEFAULT);
    } else {  // as the runtime does it: what looks up is itself looked up
      using LookUp = decltype(&cuGetProcAddress);
      auto look_up = reinterpret_cast<LookUp>(dlsym(library, "cuGetProcAddress_v2"));
      CUdriverProcAddressQueryResult status;
      look_up("cuGetProcAddress", reinterpret_cast<void**>(&look_up), version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
      const auto flags = how == "lookup_per_thread" ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                    : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
      look_up(base, &function, version, flags, &status);
    }
    if (!function) die(std::string("no ") + base);
    return function;
  };
#define R3_FUNCTION(name) found.name = reinterpret_cast<decltype(&::name)>(find(#name, R3_TEXT(name)));
#endif
#include "functions.def"
#undef R3_FUNCTION
  return found;
}

inline const Functions& cuda() {
  static const Functions functions = find_functions();
  return functions;
}

inline const char* name_of(CUresult code) {
  const char* name = "?";
  cuda().cuGetErrorName(code, &name);
  return name;
}

#define OK(call)                                                              \
  do {                                                                        \
    const CUresult code = cuda().call;                                        \
    if (code != CUDA_SUCCESS) die(std::string(#call) + ": " + name_of(code)); \
  } while (0)

inline std::string read_file(const char* path) {
  std::string text;
  std::FILE* file = std::fopen(path, "rb");
  if (!file) die(std::string("cannot read ") + path);
  for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  std::fclose(file);
  return text;
}

// The kernels of tests/fakecuda/kernels.cu: KERNELS names their PTX.
inline const std::string& kernels() {
  static const std::string text = read_file(std::getenv("KERNELS"));
  return text;
}

inline CUcontext start() {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  return context;
}

inline CUmodule load() {
  CUmodule module;
  OK(cuModuleLoadData(&module, kernels().c_str()));
  return module;
}

inline CUfunction function(CUmodule module, const char* name) {
  CUfunction function;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

inline CUfunction function(const char* name) {
  static const CUmodule module = load();
  return function(module, name);
}

// Two blocks of 32 threads.
template <typename... Arguments>
CUresult try_launch(CUfunction function, CUstream stream, Arguments... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  return cuda().cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, pointers, nullptr);
}

template <typename... Arguments>
void launch(CUfunction function, Arguments... arguments) {
  const CUresult code = try_launch(function, nullptr, arguments...);
  if (code != CUDA_SUCCESS) die(std::string("cuLaunchKernel: ") + name_of(code));
}

inline CUdeviceptr allocate(std::size_t size) {
  CUdeviceptr address;
  OK(cuMemAlloc(&address, size));
  return address;
}

template <typename T>
CUdeviceptr upload(const std::vector<T>& values) {
  const CUdeviceptr address = allocate(values.size() * sizeof(T));
  OK(cuMemcpyHtoD(address, values.data(), values.size() * sizeof(T)));
  return address;
}

template <typename T>
std::vector<T> download(CUdeviceptr address, std::size_t n) {
  std::vector<T> values(n);
  OK(cuMemcpyDtoH(values.data(), address, n * sizeof(T)));
  return values;
}

inline void print(const char* what, CUdeviceptr address, std::size_t bytes) {  // a checksum
  unsigned long long hash = 1469598103934665603ull;
  for (const unsigned char byte : download<unsigned char>(address, bytes)) hash = (hash ^ byte) * 1099511628211ull;
  std::printf("%s %016llx\n", what, hash);
}

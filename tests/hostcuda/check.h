// The frame of the test programs: `program NAME` runs one check, in a process of its own.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

inline std::map<std::string, void (*)()>& checks() {
  static std::map<std::string, void (*)()> all;
  return all;
}

struct Register {
  Register(const char* name, void (*run)()) { checks()[name] = run; }
};

#define TEST(name)                              \
  static void name();                           \
  static Register register_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

#define RETURNS(call, code)                                                                                     \
  do {                                                                                                          \
    const cudaError_t got = (call);                                                                             \
    if (got != (code)) {                                                                                        \
      std::fprintf(stderr, "%s:%d: %s returned %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(got), \
                   #code);                                                                                      \
      std::exit(1);                                                                                             \
    }                                                                                                           \
  } while (0)

#define OK(call) RETURNS(call, cudaSuccess)

int main(int count, char** arguments) {
  if (count == 2 && checks().contains(arguments[1])) {
    checks()[arguments[1]]();
    return 0;
  }
  for (const auto& [name, run] : checks()) std::puts(name.c_str());
  return count == 1 ? 0 : 2;
}

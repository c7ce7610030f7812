// Raw arrays of floats in files: how the tests hand input to the drivers and get output back.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <vector>

inline std::vector<float> read_floats(const char* path, std::size_t count) {
  std::vector<float> values(count);
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr || std::fread(values.data(), sizeof(float), count, file) != count) {
    std::fprintf(stderr, "%s: cannot read %zu floats\n", path, count);
    std::exit(1);
  }
  std::fclose(file);
  return values;
}

inline void write_floats(const char* path, const std::vector<float>& values) {
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr || std::fwrite(values.data(), sizeof(float), values.size(), file) != values.size() ||
      std::fclose(file) != 0) {
    std::fprintf(stderr, "%s: cannot write\n", path);
    std::exit(1);
  }
}

#define CHECK(call)                                                        \
  do {                                                                     \
    const cudaError_t status = (call);                                     \
    if (status != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status)); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

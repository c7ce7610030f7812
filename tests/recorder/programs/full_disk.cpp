// A disk with room for DISK_BYTES, for files below R3LLVM_RECORD: preloaded, it answers for write().
#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool in_recording(int file) {
  const char* folder = std::getenv("R3LLVM_RECORD");
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  return folder && length > 0 && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

}  // namespace

extern "C" ssize_t write(int file, const void* data, size_t size) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  static std::atomic<long> room = std::atol(std::getenv("DISK_BYTES"));
  if (in_recording(file) && (room -= static_cast<long>(size)) < 0) {
    errno = ENOSPC;
    return -1;
  }
  return real(file, data, size);
}

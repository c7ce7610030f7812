// How names are found, as a program sees it: `dlsym` with each kind of handle, `dlerror` after it, a library that wraps
// another's function. Prints what it finds; without the recorder, or with one that does not record, it is the same.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

const char* file_of(void* address) {
  Dl_info info;
  if (!address) return "nothing";
  if (!dladdr(address, &info) || !info.dli_fname) return "unknown";
  const char* slash = std::strrchr(info.dli_fname, '/');
  return slash ? slash + 1 : info.dli_fname;
}

void find(const char* where, void* handle, const char* name) {
  dlerror();
  void* found = dlsym(handle, name);
  const char* error = dlerror();
  std::printf("%s %s: %s%s%s\n", where, name, file_of(found), error ? ", " : "",
              error ? std::strstr(error, "undefined symbol") : "");
}

void find_all(const char* name) {
  void* self = dlopen(nullptr, RTLD_NOW);
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  find("default", RTLD_DEFAULT, name);
  find("next", RTLD_NEXT, name);
  find("self", self, name);
  find("libc", libc, name);
}

}  // namespace

int main(int count, char** arguments) {
  void* driver = count > 1 ? dlopen(arguments[1], RTLD_NOW | (count > 2 ? RTLD_GLOBAL : RTLD_LOCAL)) : nullptr;
  for (const char* name : {"puts", "malloc", "cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz",
                           "cuNoSuchFunction", "no_such_function"}) {
    find_all(name);
    if (driver) find("driver", driver, name);
  }
}

// What a program sees of its memory. `churn`: threads allocate and free in every way, and no two of them ever hold the
// same bytes. `attributes`: what the driver tells of pointers; the same whoever serves them. `addresses`: those of a
// program that allocates in one order.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "driver.h"

namespace {

// Each byte that is held has one holder.
class Held {
 public:
  void add(CUdeviceptr base, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto next = ranges_.lower_bound(base);
    if (next != ranges_.end() && next->first < base + size) die("overlaps the next");
    if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second > base) die("overlaps another");
    ranges_[base] = size;
  }
  void remove(CUdeviceptr base) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(base);
  }

 private:
  std::mutex mutex_;
  std::map<CUdeviceptr, std::size_t> ranges_;
};

struct Mine {
  CUdeviceptr base;
  std::size_t size;
  unsigned char last;
};

void churn_in(CUcontext context, unsigned seed, Held& held) {
  OK(cuCtxSetCurrent(context));
  std::mt19937 random(seed);
  CUstream stream;
  OK(cuStreamCreate(&stream, 0));
  std::vector<Mine> mine;
  const auto free_one = [&](std::size_t which) {
    const Mine old = mine[which];
    unsigned char last = 0;
    OK(cuMemcpyDtoH(&last, old.base + old.size - 1, 1));
    if (last != old.last) die("another wrote here");
    held.remove(old.base);
    if (random() % 2) {
      OK(cuMemFreeAsync(old.base, stream));
    } else {
      OK(cuMemFree(old.base));
    }
    mine[which] = mine.back();
    mine.pop_back();
  };
  for (int i = 0; i < 600; ++i) {
    if (mine.size() > 20 || (!mine.empty() && random() % 2)) {
      free_one(random() % mine.size());
      continue;
    }
    Mine fresh{0, 1 + random() % (random() % 5 ? 20000 : 3 << 20), static_cast<unsigned char>(random())};
    if (random() % 2) {
      OK(cuMemAlloc(&fresh.base, fresh.size));
    } else {
      OK(cuMemAllocAsync(&fresh.base, fresh.size, stream));
    }
    if (fresh.base % 256 != 0) die("not aligned");
    held.add(fresh.base, fresh.size);
    OK(cuMemcpyHtoD(fresh.base + fresh.size - 1, &fresh.last, 1));
    mine.push_back(fresh);
  }
  while (!mine.empty()) free_one(0);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy(stream));
}

void churn() {
  const CUcontext context = start();
  std::size_t before, after, total;
  OK(cuMemGetInfo(&before, &total));
  Held held;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back([&, seed] { churn_in(context, seed, held); });
  for (std::thread& thread : threads) thread.join();
  CUdeviceptr last;
  OK(cuMemAlloc(&last, 1));
  OK(cuMemFree(last));
  OK(cuMemGetInfo(&after, &total));
  std::printf("%s\n", before == after ? "all given back" : "memory is missing");
}

void tell(const char* name, CUdeviceptr base, std::size_t offset, CUcontext context) {
  CUdeviceptr start = 0, range = 0;
  std::size_t size = 0, range_size = 0;
  OK(cuMemGetAddressRange(&start, &size, base + offset));
  OK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + offset));
  OK(cuPointerGetAttribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + offset));
  CUcontext owner = nullptr;
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base + offset));
  CUmemorytype type{};
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + offset));
  int device = -1;
  OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base + offset));
  std::printf("%s %lld %zu %lld %zu %d %d %d\n", name, static_cast<long long>(base - start), size,
              static_cast<long long>(base - range), range_size, owner == context, static_cast<int>(type), device);
}

void attributes() {
  const CUcontext context = start();
  CUdeviceptr small, other, large, pitched;
  std::size_t pitch;
  OK(cuMemAlloc(&small, 1000));
  OK(cuMemAlloc(&other, 5));
  OK(cuMemAlloc(&large, (5 << 20) + 7));
  OK(cuMemAllocPitch(&pitched, &pitch, 1001, 3, 4));
  tell("small", small, 0, context);
  tell("small", small, 999, context);
  tell("other", other, 4, context);
  tell("large", large, 5 << 20, context);
  std::printf("pitch %zu\n", pitch);
  unsigned long long ids[4];
  for (int i = 0; i < 4; ++i) {
    const CUdeviceptr pointers[] = {small, other, large, pitched};
    OK(cuPointerGetAttribute(&ids[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, pointers[i] + 1));
  }
  std::sort(std::begin(ids), std::end(ids));
  std::printf("buffers told apart: %d\n", std::unique(std::begin(ids), std::end(ids)) == std::end(ids));
  std::printf("%s\n", name_of(cuda().cuMemAlloc(&small, 0)));
  std::printf("%s\n", name_of(cuda().cuMemAlloc(&small, std::size_t{1} << 46)));
  std::printf("%s\n", name_of(cuda().cuMemAllocPitch(&pitched, &pitch, 100, 3, 5)));
}

void addresses() {
  start();
  std::vector<CUdeviceptr> held;
  for (const std::size_t size : {100u, 5u << 20, 1u << 20, 4096u, (1u << 20) - 1, 3u << 20, 600u}) {
    CUdeviceptr address;
    OK(cuMemAlloc(&address, size));
    held.push_back(address);
  }
  OK(cuMemFree(held[1]));
  OK(cuMemFree(held[3]));
  for (const std::size_t size : {2u << 20, 512u, 2u << 20}) {
    CUdeviceptr address;
    OK(cuMemAlloc(&address, size));
    held.push_back(address);
  }
  for (const CUdeviceptr address : held) std::printf("%llx\n", address);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string which = count > 1 ? arguments[1] : "";
  if (which == "churn") churn();
  if (which == "attributes") attributes();
  if (which == "addresses") addresses();
}

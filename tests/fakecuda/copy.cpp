// Copies and sets.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

void device_work(Context& context, CUstream handle, bool wait, std::size_t bytes, std::function<void()> body) {
  Stream& stream = stream_of(handle, context);
  if (wait) forbid_in_capture();
  const auto finished = std::make_shared<bool>(false);  // outlives an operation that is dropped
  enqueue(stream, [&context, finished, bytes, body = std::move(body)] {
    if (!context.fault) context.fault = run_on_device(context, body);
    state().clock += 1e-6 + static_cast<double>(bytes) * 1e-12;
    *finished = true;
    return true;
  });
  if (wait) synchronize(context, [=] { return *finished; });
}

struct Side {
  bool device;  // whether it must be device memory; false: host memory, or whatever the address says
  CUdeviceptr base;
  std::size_t pitch, slice;  // bytes between rows, between slices
};

struct Extent {
  std::size_t width, height, depth;
};

void copy(Context& context, CUstream stream, bool wait, const Side& to, const Side& from, const Extent& extent) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return;
  for (std::size_t z = 0; z < extent.depth; ++z) {
    for (std::size_t y = 0; y < extent.height; ++y) {
      if (to.device) require_range(context, to.base + z * to.slice + y * to.pitch, extent.width, writable);
      if (from.device) require_range(context, from.base + z * from.slice + y * from.pitch, extent.width, readable);
    }
  }
  // What comes from pageable memory is read before the call returns, as the driver does.
  const bool stage = !wait && !from.device && !find_block(from.base);
  std::vector<std::byte> staged;
  if (stage) {
    for (std::size_t z = 0; z < extent.depth; ++z) {
      for (std::size_t y = 0; y < extent.height; ++y) {
        const auto* row = static_cast<const std::byte*>(pointer(from.base + z * from.slice + y * from.pitch));
        staged.insert(staged.end(), row, row + extent.width);
      }
    }
  }
  device_work(context, stream, wait, extent.width * extent.height * extent.depth, [=, staged = std::move(staged)] {
    for (std::size_t z = 0; z < extent.depth; ++z) {
      for (std::size_t y = 0; y < extent.height; ++y) {
        const void* row = stage ? staged.data() + (z * extent.height + y) * extent.width
                                : pointer(from.base + z * from.slice + y * from.pitch);
        std::memmove(pointer(to.base + z * to.slice + y * to.pitch), row, extent.width);
      }
    }
  });
}

CUresult copy_line(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, std::size_t size,
                   CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(size == 0 || (to && from), CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait, {to_device, to, 0, 0}, {from_device, from, 0, 0}, {size, 1, 1});
      },
      name);
}

Side side(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
          std::size_t pitch, std::size_t height) {
  require(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED,
          CUDA_ERROR_NOT_SUPPORTED);  // arrays
  const CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? address(host) : device;
  const bool on_device = type == CU_MEMORYTYPE_DEVICE || (type == CU_MEMORYTYPE_UNIFIED && find_block(base));
  return {on_device, base + x + y * pitch + z * pitch * height, pitch, pitch * height};
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(c, CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait,
             side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0),
             side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0),
             {c->WidthInBytes, c->Height, 1});
      },
      name);
}

CUresult copy_3d(const CUDA_MEMCPY3D* c, CUstream stream, bool wait, const char* name) {
  return in_context(
      [&](Context& context) {
        require(c, CUDA_ERROR_INVALID_VALUE);
        copy(context, stream, wait,
             side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
                  c->dstHeight),
             side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
                  c->srcHeight),
             {c->WidthInBytes, c->Height, c->Depth});
      },
      name);
}

template <typename Value>
CUresult set(CUdeviceptr to, std::size_t pitch, Value value, std::size_t width, std::size_t height, CUstream stream,
             const char* name) {
  return in_context(
      [&](Context& context) {
        require(to % sizeof(Value) == 0, CUDA_ERROR_INVALID_VALUE);
        for (std::size_t y = 0; y < height; ++y)
          require_range(context, to + y * pitch, width * sizeof(Value), writable);
        device_work(context, stream, false, width * height * sizeof(Value), [=] {
          for (std::size_t y = 0; y < height; ++y) {
            std::fill_n(static_cast<Value*>(pointer(to + y * pitch)), width, value);
          }
        });
      },
      name);
}

}  // namespace
}  // namespace fake

using namespace fake;

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) {
  return copy_line(to, true, address(from), false, size, nullptr, true, __func__);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) {
  return copy_line(address(to), false, from, true, size, nullptr, true, __func__);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_line(to, true, from, true, size, nullptr, false, __func__);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_line(to, false, from, false, size, nullptr, true, __func__);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy_line(to, true, address(from), false, size, stream, false, __func__);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(address(to), false, from, true, size, stream, false, __func__);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(to, true, from, true, size, stream, false, __func__);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_line(to, false, from, false, size, stream, false, __func__);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size) {
  return copy_line(to, true, from, true, size, nullptr, true, __func__);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size, CUstream stream) {
  return copy_line(to, true, from, true, size, stream, false, __func__);
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true, __func__); }
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true, __func__); }
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) { return copy_2d(c, stream, false, __func__); }
CUresult cuMemcpy3D(const CUDA_MEMCPY3D* c) { return copy_3d(c, nullptr, true, __func__); }
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* c, CUstream stream) { return copy_3d(c, stream, false, __func__); }

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t n) {
  return set(to, 0, value, n, 1, nullptr, __func__);
}
CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t n) {
  return set(to, 0, value, n, 1, nullptr, __func__);
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t n) { return set(to, 0, value, n, 1, nullptr, __func__); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream) {
  return set(to, 0, value, n, 1, stream, __func__);
}
CUresult cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D16(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return set(to, pitch, value, width, height, nullptr, __func__);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t w, size_t h, CUstream stream) {
  return set(to, pitch, value, w, h, stream, __func__);
}

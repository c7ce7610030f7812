// Copies and fills. One memory serves host and device, so each is a memmove or a memset behind CUDA's checks.
#include <cstring>

#include "hostcuda/api.h"
#include "hostcuda/array.h"
#include "hostcuda/memory.h"
#include "hostcuda/registry.h"
#include "hostcuda/stream.h"

using namespace r3::hostcuda;

namespace {

// A pitched box of bytes: `rows` rows of `width` in each of `slices`, row starts `pitch` apart, slice starts `slice`
// apart.
struct Box {
  const void* base;
  std::size_t pitch, slice;
};

struct Extent {
  std::size_t width, rows = 1, slices = 1;

  bool empty() const { return width == 0 || rows == 0 || slices == 0; }
  std::size_t span(const Box& box) const { return (slices - 1) * box.slice + (rows - 1) * box.pitch + width; }
};

// Whether an end of a copy may be touched: on the device a whole range of one block; on the host what is not known to
// be wrong.
bool reachable(const Box& box, const Extent& extent, bool device) {
  const std::uint64_t address = address_of(box.base);
  if (device || arena_address(address)) return memory().contains(address, extent.span(box));
  return address != 0;
}

cudaError_t copy(const Box& to, const Box& from, const Extent& extent, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (extent.empty()) return cudaSuccess;
  if (extent.rows > 1 && (to.pitch < extent.width || from.pitch < extent.width)) return cudaErrorInvalidPitchValue;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!reachable(to, extent, to_device) || !reachable(from, extent, from_device)) return cudaErrorInvalidValue;
  auto* target = static_cast<char*>(const_cast<void*>(to.base));
  auto* source = static_cast<const char*>(from.base);
  for (std::size_t slice = 0; slice < extent.slices; ++slice) {
    for (std::size_t row = 0; row < extent.rows; ++row) {
      std::memmove(target + slice * to.slice + row * to.pitch, source + slice * from.slice + row * from.pitch,
                   extent.width);
    }
  }
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t count, cudaMemcpyKind kind) {
  return copy(Box{to, count, count}, Box{from, count, count}, Extent{count}, kind);
}

cudaError_t fill(const Box& box, int value, const Extent& extent) {
  if (extent.empty()) return cudaSuccess;
  if (extent.rows > 1 && box.pitch < extent.width) return cudaErrorInvalidValue;
  if (!reachable(box, extent, true)) return cudaErrorInvalidValue;
  auto* target = static_cast<char*>(const_cast<void*>(box.base));
  for (std::size_t slice = 0; slice < extent.slices; ++slice) {
    for (std::size_t row = 0; row < extent.rows; ++row) {
      std::memset(target + slice * box.slice + row * box.pitch, value, extent.width);
    }
  }
  return cudaSuccess;
}

Box box_at(const cudaPitchedPtr& pitched, const cudaPos& at) {
  const std::size_t slice = pitched.pitch * pitched.ysize;
  return {static_cast<const char*>(pitched.ptr) + at.z * slice + at.y * pitched.pitch + at.x, pitched.pitch, slice};
}

Box box_of(const cudaArray& array, const cudaPos& at) {
  const std::size_t pitch = array.row_pitch();
  return box_at({pointer_to(array.base), pitch, array.extent.width, array.rows()},
                {at.x * array.texel_bytes(), at.y, at.z});
}

// Where an array takes part, widths count texels.
cudaError_t copy3d(const cudaMemcpy3DParms* p) {
  if (!p) return cudaErrorInvalidValue;
  const cudaArray* to = find_array(p->dstArray);
  const cudaArray* from = find_array(p->srcArray);
  if ((p->dstArray && !to) || (p->srcArray && !from)) return cudaErrorInvalidValue;
  const std::size_t unit = to ? to->texel_bytes() : from ? from->texel_bytes() : 1;
  return copy(to ? box_of(*to, p->dstPos) : box_at(p->dstPtr, p->dstPos),
              from ? box_of(*from, p->srcPos) : box_at(p->srcPtr, p->srcPos),
              {p->extent.width * unit, p->extent.height, p->extent.depth}, p->kind);
}

// `at_byte` and `width` are in bytes.
cudaError_t copy_array(cudaArray_const_t handle, std::size_t at_byte, std::size_t row, const Box& other, bool to_array,
                       std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  const cudaArray* array = find_array(handle);
  if (!array || at_byte + width > array->row_pitch() || row + height > array->rows()) return cudaErrorInvalidValue;
  Box box = box_of(*array, {0, row, 0});
  box.base = static_cast<const char*>(box.base) + at_byte;
  return to_array ? copy(box, other, {width, height}, kind) : copy(other, box, {width, height}, kind);
}

cudaError_t copy3d_peer(const cudaMemcpy3DPeerParms* p) {
  if (!p) return cudaErrorInvalidValue;
  if (p->srcDevice != 0 || p->dstDevice != 0) return cudaErrorInvalidDevice;
  if (p->srcArray || p->dstArray) return not_supported("cudaMemcpy3DPeer with a CUDA array");
  return copy(box_at(p->dstPtr, p->dstPos), box_at(p->srcPtr, p->srcPos),
              {p->extent.width, p->extent.height, p->extent.depth}, cudaMemcpyDeviceToDevice);
}

cudaError_t copy_peer(void* to, int to_device, const void* from, int from_device, std::size_t count) {
  if (to_device != 0 || from_device != 0) return cudaErrorInvalidDevice;
  return copy(to, from, count, cudaMemcpyDeviceToDevice);
}

// Finds the part of a variable that a symbol call names.
cudaError_t find_part(const void* symbol, std::size_t count, std::size_t offset, void** out) {
  PlacedVariable variable;
  if (const cudaError_t error = registry().variable(symbol, &variable); error != cudaSuccess) return error;
  if (offset > variable.size || count > variable.size - offset) return cudaErrorInvalidValue;
  *out = pointer_to(variable.base + offset);
  return cudaSuccess;
}

cudaError_t to_symbol(const void* symbol, const void* from, std::size_t count, std::size_t offset,
                      cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  void* to = nullptr;
  const cudaError_t error = find_part(symbol, count, offset, &to);
  return error != cudaSuccess ? error : copy(to, from, count, kind);
}

cudaError_t from_symbol(void* to, const void* symbol, std::size_t count, std::size_t offset, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  void* from = nullptr;
  const cudaError_t error = find_part(symbol, count, offset, &from);
  return error != cudaSuccess ? error : copy(to, from, count, kind);
}

// A call that is ordered by a stream.
template <class Body>
cudaError_t in(cudaStream_t stream, Body&& body) {
  return call([&] { return valid(stream) ? body() : cudaErrorInvalidResourceHandle; });
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t count, cudaMemcpyKind kind) {
  return call([&] { return copy(to, from, count, kind); });
}
R3_PTDS(cudaMemcpy);

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return in(stream, [&] { return copy(to, from, count, kind); });
}
R3_PTSZ(cudaMemcpyAsync);

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t count) {
  return call([&] { return copy_peer(to, to_device, from, from_device, count); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t count,
                                cudaStream_t stream) {
  return in(stream, [&] { return copy_peer(to, to_device, from, from_device, count); });
}

cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* sizes, size_t count,
                                 cudaMemcpyAttributes*, size_t*, size_t, cudaStream_t stream) {
  return in(stream, [&] {
    if (!to || !from || !sizes) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (const cudaError_t error = copy(to[i], from[i], sizes[i], cudaMemcpyDefault); error != cudaSuccess)
        return error;
    }
    return cudaSuccess;
  });
}
R3_PTSZ(cudaMemcpyBatchAsync);

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return call([&] { return copy({to, to_pitch, 0}, {from, from_pitch, 0}, {width, height}, kind); });
}
R3_PTDS(cudaMemcpy2D);

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return in(stream, [&] { return copy({to, to_pitch, 0}, {from, from_pitch, 0}, {width, height}, kind); });
}
R3_PTSZ(cudaMemcpy2DAsync);

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  return call([&] { return copy3d(p); });
}
R3_PTDS(cudaMemcpy3D);

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return in(stream, [&] { return copy3d(p); });
}
R3_PTSZ(cudaMemcpy3DAsync);

cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) {
  return call([&] { return copy3d_peer(p); });
}
R3_PTDS(cudaMemcpy3DPeer);

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  return in(stream, [&] { return copy3d_peer(p); });
}
R3_PTSZ(cudaMemcpy3DPeerAsync);

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                size_t height, cudaMemcpyKind kind) {
  return call([&] { return copy_array(to, x, y, {from, pitch, 0}, true, width, height, kind); });
}
R3_PTDS(cudaMemcpy2DToArray);

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return in(stream, [&] { return copy_array(to, x, y, {from, pitch, 0}, true, width, height, kind); });
}
R3_PTSZ(cudaMemcpy2DToArrayAsync);

cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind kind) {
  return call([&] { return copy_array(from, x, y, {to, pitch, 0}, false, width, height, kind); });
}
R3_PTDS(cudaMemcpy2DFromArray);

cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                       size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return in(stream, [&] { return copy_array(from, x, y, {to, pitch, 0}, false, width, height, kind); });
}
R3_PTSZ(cudaMemcpy2DFromArrayAsync);

cudaError_t cudaMemset(void* base, int value, size_t count) {
  return call([&] { return fill({base, count, count}, value, {count}); });
}
R3_PTDS(cudaMemset);

cudaError_t cudaMemsetAsync(void* base, int value, size_t count, cudaStream_t stream) {
  return in(stream, [&] { return fill({base, count, count}, value, {count}); });
}
R3_PTSZ(cudaMemsetAsync);

cudaError_t cudaMemset2D(void* base, size_t pitch, int value, size_t width, size_t height) {
  return call([&] { return fill({base, pitch, 0}, value, {width, height}); });
}
R3_PTDS(cudaMemset2D);

cudaError_t cudaMemset2DAsync(void* base, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return in(stream, [&] { return fill({base, pitch, 0}, value, {width, height}); });
}
R3_PTSZ(cudaMemset2DAsync);

cudaError_t cudaMemset3D(cudaPitchedPtr at, int value, cudaExtent extent) {
  return call([&] { return fill(box_at(at, {}), value, {extent.width, extent.height, extent.depth}); });
}
R3_PTDS(cudaMemset3D);

cudaError_t cudaMemset3DAsync(cudaPitchedPtr at, int value, cudaExtent extent, cudaStream_t stream) {
  return in(stream, [&] { return fill(box_at(at, {}), value, {extent.width, extent.height, extent.depth}); });
}
R3_PTSZ(cudaMemset3DAsync);

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t count, size_t offset, cudaMemcpyKind kind) {
  return call([&] { return to_symbol(symbol, from, count, offset, kind); });
}
R3_PTDS(cudaMemcpyToSymbol);

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t count, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return in(stream, [&] { return to_symbol(symbol, from, count, offset, kind); });
}
R3_PTSZ(cudaMemcpyToSymbolAsync);

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind) {
  return call([&] { return from_symbol(to, symbol, count, offset, kind); });
}
R3_PTDS(cudaMemcpyFromSymbol);

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return in(stream, [&] { return from_symbol(to, symbol, count, offset, kind); });
}
R3_PTSZ(cudaMemcpyFromSymbolAsync);

cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  return call([&] {
    if (!out) return cudaErrorInvalidValue;
    return find_part(symbol, 0, 0, out);
  });
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  return call([&] {
    PlacedVariable variable;
    if (!size) return cudaErrorInvalidValue;
    const cudaError_t error = registry().variable(symbol, &variable);
    if (error == cudaSuccess) *size = variable.size;
    return error;
  });
}

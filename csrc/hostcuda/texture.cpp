// CUDA arrays and texture objects.
#include "simt/texture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "hostcuda/api.h"
#include "hostcuda/array.h"
#include "hostcuda/memory.h"

using namespace r3::hostcuda;

namespace {

struct TextureObject {
  cudaResourceDesc resource;
  cudaTextureDesc texture;
};

// What the application holds.
struct Held {
  std::mutex mutex;
  std::map<const cudaArray*, std::unique_ptr<cudaArray>> arrays;
  std::map<cudaTextureObject_t, TextureObject> textures;
};

Held& held() {
  static Held* const all = new Held;  // outlives the application's own static objects
  return *all;
}

// 1, 2 or 4 channels of 8, 16 or 32 bits, all alike.
bool is_texel(const cudaChannelFormatDesc& format) {
  const int widths[] = {format.x, format.y, format.z, format.w};
  const auto channels = std::find(widths, widths + 4, 0) - widths;
  if (channels == 0 || channels == 3 || (format.x != 8 && format.x != 16 && format.x != 32)) return false;
  if (std::any_of(widths, widths + channels, [&](int width) { return width != format.x; })) return false;
  if (std::any_of(widths + channels, widths + 4, [](int width) { return width != 0; })) return false;
  const bool is_integer = format.f == cudaChannelFormatKindSigned || format.f == cudaChannelFormatKindUnsigned;
  return is_integer || (format.f == cudaChannelFormatKindFloat && format.x != 8);
}

cudaError_t make_array(cudaArray_t* out, const cudaChannelFormatDesc* format, cudaExtent extent, unsigned flags) {
  if (!out || !format || !is_texel(*format) || extent.width == 0) return cudaErrorInvalidValue;
  if (flags & ~(cudaArrayLayered | cudaArraySurfaceLoadStore))
    return not_supported("a cubemap, sparse or gather array");
  if (extent.depth != 0 && extent.height == 0 && !(flags & cudaArrayLayered)) return cudaErrorInvalidValue;
  auto array = std::make_unique<cudaArray>();
  array->format = *format;
  array->extent = extent;
  array->flags = flags;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(array->row_pitch(), array->rows(), &bytes) ||
      __builtin_mul_overflow(bytes, array->slices(), &bytes))
    return cudaErrorMemoryAllocation;
  array->base = memory().allocate(bytes, Block::Kind::device);
  if (array->base == 0) return cudaErrorMemoryAllocation;
  *out = array.get();
  const std::lock_guard lock(held().mutex);
  held().arrays.emplace(array.get(), std::move(array));
  return cudaSuccess;
}

cudaError_t free_array(cudaArray_t handle) {
  if (!handle) return cudaSuccess;
  const std::lock_guard lock(held().mutex);
  const auto found = held().arrays.find(handle);
  if (found == held().arrays.end()) return cudaErrorContextIsDestroyed;
  memory().release(handle->base, {Block::Kind::device});
  held().arrays.erase(found);
  return cudaSuccess;
}

// The descriptor of a texture's texels; the rest is left alone.
cudaError_t describe_texels(const cudaResourceDesc& resource, r3::Texture* texture) {
  cudaChannelFormatDesc format{};
  switch (resource.resType) {
    case cudaResourceTypeArray: {
      const cudaArray* array = find_array(resource.res.array.array);
      if (!array) return cudaErrorInvalidValue;
      format = array->format;
      texture->texels = array->base;
      texture->row_pitch = array->row_pitch();
      texture->slice_pitch = array->row_pitch() * array->rows();
      texture->extent[0] = static_cast<std::uint32_t>(array->extent.width);
      texture->extent[1] = static_cast<std::uint32_t>(array->rows());
      texture->extent[2] = static_cast<std::uint32_t>(array->slices());
      break;
    }
    case cudaResourceTypeLinear:
    case cudaResourceTypePitch2D: {
      const bool is_linear = resource.resType == cudaResourceTypeLinear;
      const auto& linear = resource.res.linear;
      const auto& rows = resource.res.pitch2D;
      format = is_linear ? linear.desc : rows.desc;
      if (!is_texel(format)) return cudaErrorInvalidChannelDescriptor;
      const cudaArray shape{0, format, {}, 0};
      const std::size_t width = is_linear ? linear.sizeInBytes / shape.texel_bytes() : rows.width;
      const std::size_t height = is_linear ? 1 : rows.height;
      texture->texels = address_of(is_linear ? linear.devPtr : rows.devPtr);
      texture->row_pitch = is_linear ? linear.sizeInBytes : rows.pitchInBytes;
      texture->extent[0] = static_cast<std::uint32_t>(width);
      texture->extent[1] = static_cast<std::uint32_t>(height);
      texture->extent[2] = 1;
      if (width == 0 || height == 0) return cudaErrorInvalidValue;
      const std::size_t bytes = (height - 1) * texture->row_pitch + width * shape.texel_bytes();
      if (!memory().contains(texture->texels, bytes)) return cudaErrorInvalidValue;
      break;
    }
    default:
      return not_supported("a texture object over a mipmapped array");
  }
  const cudaArray shape{0, format, {}, 0};
  texture->channels = static_cast<std::uint32_t>(shape.channels());
  texture->channel_bits = static_cast<std::uint32_t>(format.x);
  texture->kind = static_cast<r3::Texture::Kind>(format.f);
  return cudaSuccess;
}

cudaError_t make_texture(cudaTextureObject_t* out, const cudaResourceDesc* resource, const cudaTextureDesc* sampling,
                         const cudaResourceViewDesc* view) {
  if (!out || !resource || !sampling) return cudaErrorInvalidValue;
  if (view && view->format != cudaResViewFormatNone) return not_supported("a texture object with a resource view");
  r3::Texture texture{};
  if (const cudaError_t error = describe_texels(*resource, &texture); error != cudaSuccess) return error;
  texture.marked = r3::Texture::mark;
  for (int d = 0; d < 3; ++d) texture.outside[d] = static_cast<r3::Texture::Outside>(sampling->addressMode[d]);
  texture.linear = sampling->filterMode == cudaFilterModeLinear;
  texture.normalised = sampling->normalizedCoords != 0;
  const bool is_integer = texture.kind != r3::Texture::Kind::real;
  texture.as_fractions = sampling->readMode == cudaReadModeNormalizedFloat && is_integer;
  if (texture.as_fractions && texture.channel_bits == 32) return cudaErrorInvalidNormSetting;
  if (texture.linear && is_integer && !texture.as_fractions) return cudaErrorInvalidFilterSetting;
  std::copy_n(sampling->borderColor, 4, texture.border);

  const std::uint64_t place = memory().allocate(sizeof texture, Block::Kind::device);
  if (place == 0) return cudaErrorMemoryAllocation;
  std::memcpy(pointer_to(place), &texture, sizeof texture);
  *out = place;
  const std::lock_guard lock(held().mutex);
  held().textures.emplace(place, TextureObject{*resource, *sampling});
  return cudaSuccess;
}

// Calls `body` with what is known of a texture object.
template <class Body>
cudaError_t with_texture(cudaTextureObject_t handle, Body&& body) {
  return call([&] {
    const std::lock_guard lock(held().mutex);
    const auto found = held().textures.find(handle);
    return found == held().textures.end() ? cudaErrorInvalidValue : body(found);
  });
}

}  // namespace

const cudaArray* r3::hostcuda::find_array(cudaArray_const_t handle) {
  const std::lock_guard lock(held().mutex);
  const auto found = held().arrays.find(handle);
  return found == held().arrays.end() ? nullptr : found->second.get();
}

cudaError_t cudaMallocArray(cudaArray_t* out, const cudaChannelFormatDesc* format, size_t width, size_t height,
                            unsigned flags) {
  return call([&] { return make_array(out, format, {width, height, 0}, flags); });
}

cudaError_t cudaMalloc3DArray(cudaArray_t* out, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
  return call([&] { return make_array(out, format, extent, flags); });
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  return call([&] { return free_array(array); });
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags, cudaArray_t handle) {
  return call([&] {
    const cudaArray* array = find_array(handle);
    if (!array) return cudaErrorInvalidValue;
    if (format) *format = array->format;
    if (extent) *extent = array->extent;
    if (flags) *flags = array->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t handle) {
  return call([&] {
    const cudaArray* array = find_array(handle);
    if (!format || !array) return cudaErrorInvalidValue;
    *format = array->format;
    return cudaSuccess;
  });
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* out, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* texture, const cudaResourceViewDesc* view) {
  return call([&] { return make_texture(out, resource, texture, view); });
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t handle) {
  if (handle == 0) return call([] { return cudaSuccess; });
  return with_texture(handle, [&](auto found) {
    memory().release(handle, {Block::Kind::device});
    held().textures.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* out, cudaTextureObject_t handle) {
  return with_texture(handle, [&](auto found) {
    if (!out) return cudaErrorInvalidValue;
    *out = found->second.resource;
    return cudaSuccess;
  });
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* out, cudaTextureObject_t handle) {
  return with_texture(handle, [&](auto found) {
    if (!out) return cudaErrorInvalidValue;
    *out = found->second.texture;
    return cudaSuccess;
  });
}

// Texture objects: what is fetched from where, outside the edges and between texels.
#include <cuda_fp16.h>

#include "report.h"

constexpr int kPoints = 24;

// Coordinates from before the first texel to beyond the last of `size`, with fractions of every kind.
__device__ float spread(int i, float size) { return -0.8f * size + 2.6f * size * i / kPoints + 0.013f * i; }

__global__ void fetch_1d_integer(cudaTextureObject_t texture, int4* out) {
  out[threadIdx.x] = tex1Dfetch<int4>(texture, static_cast<int>(threadIdx.x) - 2);
}
__global__ void fetch_1d(cudaTextureObject_t texture, float* out, float size) {
  out[threadIdx.x] = tex1D<float>(texture, spread(threadIdx.x, size));
}
__global__ void fetch_2d(cudaTextureObject_t texture, float4* out, float width, float height) {
  int i = threadIdx.x;
  out[i] = tex2D<float4>(texture, spread(i, width), spread(kPoints - 1 - i, height));
}
__global__ void fetch_2d_integer(cudaTextureObject_t texture, ushort2* out, float width, float height) {
  int i = threadIdx.x;
  out[i] = tex2D<ushort2>(texture, spread(i, width), spread(kPoints - 1 - i, height));
}
__global__ void fetch_layers(cudaTextureObject_t texture, float* out) {
  int i = threadIdx.x;
  out[i] = tex2DLayered<float>(texture, 0.7f + i % 4, 1.2f, i / 4 - 1);
}
__global__ void fetch_3d(cudaTextureObject_t texture, float* out) {
  int i = threadIdx.x;
  out[i] = tex3D<float>(texture, spread(i, 3.0f), 0.25f * i, 0.5f + 0.125f * i);
}

struct Sampling {
  cudaTextureAddressMode outside = cudaAddressModeClamp;
  cudaTextureFilterMode filter = cudaFilterModePoint;
  cudaTextureReadMode read = cudaReadModeElementType;
  bool normalised = false;
};

cudaTextureObject_t texture_of(const cudaResourceDesc& resource, const Sampling& sampling) {
  cudaTextureDesc description{};
  for (auto& mode : description.addressMode) mode = sampling.outside;
  description.filterMode = sampling.filter;
  description.readMode = sampling.read;
  description.normalizedCoords = sampling.normalised;
  cudaTextureObject_t texture = 0;
  check(cudaCreateTextureObject(&texture, &resource, &description, nullptr), "cudaCreateTextureObject");
  return texture;
}

template <typename T>
struct TexelArray {
  TexelArray(const std::vector<T>& texels, size_t width, size_t height, size_t depth = 0, unsigned flags = 0) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    check(cudaMalloc3DArray(&array, &format, {width, height, depth}, flags), "cudaMalloc3DArray");
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<T*>(texels.data()), width * sizeof(T), width, height);
    copy.dstArray = array;
    copy.extent = {width, height ? height : 1, depth ? depth : 1};
    copy.kind = cudaMemcpyHostToDevice;
    check(cudaMemcpy3D(&copy), "cudaMemcpy3D");
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
  }
  ~TexelArray() { cudaFreeArray(array); }
  cudaArray_t array = nullptr;
  cudaResourceDesc resource{};
};

template <typename T, typename Out, typename Kernel, typename... Arguments>
void fetched(const char* name, const cudaResourceDesc& resource, const Sampling& sampling, Kernel kernel,
             Arguments... arguments) {
  Array<Out> out(kPoints);
  cudaTextureObject_t texture = texture_of(resource, sampling);
  kernel<<<1, kPoints>>>(texture, out.data, arguments...);
  finish(name);
  std::vector<Out> values = out.host();
  const auto* flat = reinterpret_cast<const T*>(values.data());
  print(name, std::vector<T>(flat, flat + kPoints * sizeof(Out) / sizeof(T)));
  check(cudaDestroyTextureObject(texture), "cudaDestroyTextureObject");
}

int main() {
  std::vector<int4> quads;
  for (int i = 0; i < 16; ++i) quads.push_back({i, -i, 1000 * i, 7});
  Array<int4> linear(quads.size());
  check(cudaMemcpy(linear.data, quads.data(), quads.size() * sizeof(int4), cudaMemcpyHostToDevice), "cudaMemcpy");
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear = {linear.data, cudaCreateChannelDesc<int4>(), quads.size() * sizeof(int4)};
  fetched<uint32_t, int4>("linear memory", resource, {}, fetch_1d_integer);

  std::vector<float> row{1, 4, 9, 16, 25};
  TexelArray<float> line(row, row.size(), 0);
  const cudaTextureAddressMode everywhere[] = {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                                               cudaAddressModeBorder};
  const char* names[] = {"wrap", "clamp", "mirror", "border"};
  for (int i = 0; i < 4; ++i) {
    std::printf("%s\n", names[i]);
    for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
      fetched<float, float>("in texels", line.resource, {everywhere[i], filter}, fetch_1d, 5.0f);
      fetched<float, float>("normalised", line.resource, {everywhere[i], filter, cudaReadModeElementType, true},
                            fetch_1d, 1.0f);
    }
  }

  std::vector<uchar4> image;
  std::vector<ushort2> integers;
  for (unsigned char i = 0; i < 12; ++i) {
    image.push_back(make_uchar4(20 * i, 255 - 20 * i, i % 2 * 255, 51));
    integers.push_back(make_ushort2(4000 * i, i));
  }
  TexelArray<uchar4> colours(image, 4, 3);
  for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
    fetched<float, float4>("colours", colours.resource, {cudaAddressModeBorder, filter, cudaReadModeNormalizedFloat},
                           fetch_2d, 4.0f, 3.0f);
  }
  TexelArray<ushort2> pairs(integers, 4, 3);
  fetched<uint32_t, ushort2>("pairs", pairs.resource, {}, fetch_2d_integer, 4.0f, 3.0f);

  std::vector<float> volume;
  for (int i = 0; i < 60; ++i) volume.push_back(static_cast<float>(i * i % 61));
  TexelArray<float> layers(volume, 5, 4, 3, cudaArrayLayered);
  fetched<float, float>("layers", layers.resource, {cudaAddressModeClamp, cudaFilterModeLinear}, fetch_layers);
  TexelArray<float> cube(volume, 3, 4, 5);
  fetched<float, float>("volume", cube.resource, {cudaAddressModeBorder, cudaFilterModeLinear}, fetch_3d);

  std::vector<float> pitched(64 * 3);
  for (int i = 0; i < 64 * 3; ++i) pitched[i] = static_cast<float>(i);
  Array<float> rows(pitched.size());
  check(cudaMemcpy(rows.data, pitched.data(), pitched.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D = {rows.data, cudaCreateChannelDesc<float>(), 10, 3, 64 * sizeof(float)};
  fetched<float, float>("pitched rows", resource, {cudaAddressModeClamp, cudaFilterModeLinear}, fetch_1d, 10.0f);
  return 0;
}

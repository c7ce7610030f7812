#include "hostcuda/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "hostcuda/api.h"
#include "hostcuda/memory.h"
#include "hostcuda/registry.h"
#include "hostcuda/stream.h"

namespace r3::hostcuda {
namespace {

constexpr char device_name[] = "r3llvm host device (sm_90)";
constexpr char pci_bus_id[] = "0000:00:00.0";
constexpr int version = CUDART_VERSION;

struct Figure {
  cudaDeviceAttr attribute;
  int value;
};

// Every attribute not named here is 0: absent.
constexpr Figure figures[] = {
    {cudaDevAttrMaxThreadsPerBlock, max_block_threads},
    {cudaDevAttrMaxBlockDimX, max_block_dim[0]},
    {cudaDevAttrMaxBlockDimY, max_block_dim[1]},
    {cudaDevAttrMaxBlockDimZ, max_block_dim[2]},
    {cudaDevAttrMaxGridDimX, static_cast<int>(max_grid_dim[0])},
    {cudaDevAttrMaxGridDimY, static_cast<int>(max_grid_dim[1])},
    {cudaDevAttrMaxGridDimZ, static_cast<int>(max_grid_dim[2])},
    {cudaDevAttrMaxSharedMemoryPerBlock, shared_default},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, warp_size},
    {cudaDevAttrMaxPitch, 2147483647},
    {cudaDevAttrMaxRegistersPerBlock, registers},
    {cudaDevAttrClockRate, 1980000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrMultiProcessorCount, multiprocessors},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrMaxTexture1DWidth, 131072},
    {cudaDevAttrMaxTexture2DWidth, 131072},
    {cudaDevAttrMaxTexture2DHeight, 65536},
    {cudaDevAttrMaxTexture3DWidth, 16384},
    {cudaDevAttrMaxTexture3DHeight, 16384},
    {cudaDevAttrMaxTexture3DDepth, 16384},
    {cudaDevAttrMaxTexture2DLayeredWidth, 32768},
    {cudaDevAttrMaxTexture2DLayeredHeight, 32768},
    {cudaDevAttrMaxTexture2DLayeredLayers, 2048},
    {cudaDevAttrSurfaceAlignment, 512},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrMemoryClockRate, 3201000},
    {cudaDevAttrGlobalMemoryBusWidth, 6016},
    {cudaDevAttrL2CacheSize, 62914560},
    {cudaDevAttrMaxThreadsPerMultiProcessor, max_resident_threads},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrMaxTexture1DLayeredWidth, 32768},
    {cudaDevAttrMaxTexture1DLayeredLayers, 2048},
    {cudaDevAttrMaxTexture2DGatherWidth, 32768},
    {cudaDevAttrMaxTexture2DGatherHeight, 32768},
    {cudaDevAttrMaxTexture3DWidthAlt, 8192},
    {cudaDevAttrMaxTexture3DHeightAlt, 8192},
    {cudaDevAttrMaxTexture3DDepthAlt, 32768},
    {cudaDevAttrTexturePitchAlignment, 32},
    {cudaDevAttrMaxTextureCubemapWidth, 32768},
    {cudaDevAttrMaxTextureCubemapLayeredWidth, 32768},
    {cudaDevAttrMaxTextureCubemapLayeredLayers, 2046},
    {cudaDevAttrMaxSurface1DWidth, 32768},
    {cudaDevAttrMaxSurface2DWidth, 131072},
    {cudaDevAttrMaxSurface2DHeight, 65536},
    {cudaDevAttrMaxSurface3DWidth, 16384},
    {cudaDevAttrMaxSurface3DHeight, 16384},
    {cudaDevAttrMaxSurface3DDepth, 16384},
    {cudaDevAttrMaxSurface1DLayeredWidth, 32768},
    {cudaDevAttrMaxSurface1DLayeredLayers, 2048},
    {cudaDevAttrMaxSurface2DLayeredWidth, 32768},
    {cudaDevAttrMaxSurface2DLayeredHeight, 32768},
    {cudaDevAttrMaxSurface2DLayeredLayers, 2048},
    {cudaDevAttrMaxSurfaceCubemapWidth, 32768},
    {cudaDevAttrMaxSurfaceCubemapLayeredWidth, 32768},
    {cudaDevAttrMaxSurfaceCubemapLayeredLayers, 2046},
    {cudaDevAttrMaxTexture1DLinearWidth, 268435456},
    {cudaDevAttrMaxTexture2DLinearWidth, 131072},
    {cudaDevAttrMaxTexture2DLinearHeight, 65000},
    {cudaDevAttrMaxTexture2DLinearPitch, 2097120},
    {cudaDevAttrMaxTexture2DMipmappedWidth, 32768},
    {cudaDevAttrMaxTexture2DMipmappedHeight, 32768},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrMaxTexture1DMipmappedWidth, 32768},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrGlobalL1CacheSupported, 1},
    {cudaDevAttrLocalL1CacheSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, shared_bytes},
    {cudaDevAttrMaxRegistersPerMultiprocessor, registers},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrComputePreemptionSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, shared_opt_in},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, max_resident_blocks},
    {cudaDevAttrMaxPersistingL2CacheSize, 39321600},
    {cudaDevAttrMaxAccessPolicyWindowSize, 134217728},
    {cudaDevAttrReservedSharedMemoryPerBlock, shared_reserved},
    {cudaDevAttrHostRegisterReadOnlySupported, 1},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMemSyncDomainCount, 1},
    {cudaDevAttrNumaId, -1},
    {cudaDevAttrHostNumaId, -1},
};

int figure(cudaDeviceAttr attribute) {
  for (const Figure& f : figures) {
    if (f.attribute == attribute) return f.value;
  }
  return 0;
}

cudaDeviceProp properties() {
  cudaDeviceProp p{};
  static_assert(sizeof device_name <= sizeof p.name);
  std::memcpy(p.name, device_name, sizeof device_name);
  std::memcpy(p.uuid.bytes, "r3llvm-host-sm90", sizeof p.uuid.bytes);
  p.totalGlobalMem = memory().total();
  p.sharedMemPerBlock = shared_default;
  p.regsPerBlock = registers;
  p.warpSize = warp_size;
  p.memPitch = figure(cudaDevAttrMaxPitch);
  p.maxThreadsPerBlock = max_block_threads;
  std::copy(std::begin(max_block_dim), std::end(max_block_dim), p.maxThreadsDim);
  std::copy(std::begin(max_grid_dim), std::end(max_grid_dim), p.maxGridSize);
  p.totalConstMem = figure(cudaDevAttrTotalConstantMemory);
  p.major = figure(cudaDevAttrComputeCapabilityMajor);
  p.minor = figure(cudaDevAttrComputeCapabilityMinor);
  p.textureAlignment = figure(cudaDevAttrTextureAlignment);
  p.texturePitchAlignment = figure(cudaDevAttrTexturePitchAlignment);
  p.multiProcessorCount = multiprocessors;
  p.canMapHostMemory = 1;
  p.maxTexture1D = figure(cudaDevAttrMaxTexture1DWidth);
  p.maxTexture1DMipmap = figure(cudaDevAttrMaxTexture1DMipmappedWidth);
  p.maxTexture2D[0] = figure(cudaDevAttrMaxTexture2DWidth);
  p.maxTexture2D[1] = figure(cudaDevAttrMaxTexture2DHeight);
  p.maxTexture2DMipmap[0] = figure(cudaDevAttrMaxTexture2DMipmappedWidth);
  p.maxTexture2DMipmap[1] = figure(cudaDevAttrMaxTexture2DMipmappedHeight);
  p.maxTexture2DLinear[0] = figure(cudaDevAttrMaxTexture2DLinearWidth);
  p.maxTexture2DLinear[1] = figure(cudaDevAttrMaxTexture2DLinearHeight);
  p.maxTexture2DLinear[2] = figure(cudaDevAttrMaxTexture2DLinearPitch);
  p.maxTexture2DGather[0] = figure(cudaDevAttrMaxTexture2DGatherWidth);
  p.maxTexture2DGather[1] = figure(cudaDevAttrMaxTexture2DGatherHeight);
  p.maxTexture3D[0] = figure(cudaDevAttrMaxTexture3DWidth);
  p.maxTexture3D[1] = figure(cudaDevAttrMaxTexture3DHeight);
  p.maxTexture3D[2] = figure(cudaDevAttrMaxTexture3DDepth);
  p.maxTexture3DAlt[0] = figure(cudaDevAttrMaxTexture3DWidthAlt);
  p.maxTexture3DAlt[1] = figure(cudaDevAttrMaxTexture3DHeightAlt);
  p.maxTexture3DAlt[2] = figure(cudaDevAttrMaxTexture3DDepthAlt);
  p.maxTextureCubemap = figure(cudaDevAttrMaxTextureCubemapWidth);
  p.maxTexture1DLayered[0] = figure(cudaDevAttrMaxTexture1DLayeredWidth);
  p.maxTexture1DLayered[1] = figure(cudaDevAttrMaxTexture1DLayeredLayers);
  p.maxTexture2DLayered[0] = figure(cudaDevAttrMaxTexture2DLayeredWidth);
  p.maxTexture2DLayered[1] = figure(cudaDevAttrMaxTexture2DLayeredHeight);
  p.maxTexture2DLayered[2] = figure(cudaDevAttrMaxTexture2DLayeredLayers);
  p.maxTextureCubemapLayered[0] = figure(cudaDevAttrMaxTextureCubemapLayeredWidth);
  p.maxTextureCubemapLayered[1] = figure(cudaDevAttrMaxTextureCubemapLayeredLayers);
  p.maxSurface1D = figure(cudaDevAttrMaxSurface1DWidth);
  p.maxSurface2D[0] = figure(cudaDevAttrMaxSurface2DWidth);
  p.maxSurface2D[1] = figure(cudaDevAttrMaxSurface2DHeight);
  p.maxSurface3D[0] = figure(cudaDevAttrMaxSurface3DWidth);
  p.maxSurface3D[1] = figure(cudaDevAttrMaxSurface3DHeight);
  p.maxSurface3D[2] = figure(cudaDevAttrMaxSurface3DDepth);
  p.maxSurface1DLayered[0] = figure(cudaDevAttrMaxSurface1DLayeredWidth);
  p.maxSurface1DLayered[1] = figure(cudaDevAttrMaxSurface1DLayeredLayers);
  p.maxSurface2DLayered[0] = figure(cudaDevAttrMaxSurface2DLayeredWidth);
  p.maxSurface2DLayered[1] = figure(cudaDevAttrMaxSurface2DLayeredHeight);
  p.maxSurface2DLayered[2] = figure(cudaDevAttrMaxSurface2DLayeredLayers);
  p.maxSurfaceCubemap = figure(cudaDevAttrMaxSurfaceCubemapWidth);
  p.maxSurfaceCubemapLayered[0] = figure(cudaDevAttrMaxSurfaceCubemapLayeredWidth);
  p.maxSurfaceCubemapLayered[1] = figure(cudaDevAttrMaxSurfaceCubemapLayeredLayers);
  p.surfaceAlignment = figure(cudaDevAttrSurfaceAlignment);
  p.concurrentKernels = 1;
  p.asyncEngineCount = figure(cudaDevAttrAsyncEngineCount);
  p.unifiedAddressing = 1;
  p.memoryBusWidth = figure(cudaDevAttrGlobalMemoryBusWidth);
  p.l2CacheSize = figure(cudaDevAttrL2CacheSize);
  p.persistingL2CacheMaxSize = figure(cudaDevAttrMaxPersistingL2CacheSize);
  p.maxThreadsPerMultiProcessor = max_resident_threads;
  p.streamPrioritiesSupported = 1;
  p.globalL1CacheSupported = 1;
  p.localL1CacheSupported = 1;
  p.sharedMemPerMultiprocessor = shared_bytes;
  p.regsPerMultiprocessor = registers;
  p.managedMemory = 1;
  p.concurrentManagedAccess = 1;
  p.computePreemptionSupported = 1;
  p.canUseHostPointerForRegisteredMem = 1;
  p.cooperativeLaunch = 1;
  p.sharedMemPerBlockOptin = shared_opt_in;
  p.maxBlocksPerMultiProcessor = max_resident_blocks;
  p.accessPolicyMaxWindowSize = figure(cudaDevAttrMaxAccessPolicyWindowSize);
  p.reservedSharedMemPerBlock = shared_reserved;
  p.hostRegisterSupported = 1;
  p.hostRegisterReadOnlySupported = 1;
  p.memoryPoolsSupported = 1;
  return p;
}

// What the application set, to be read back. None of it changes what a kernel does here.
struct Settings {
  std::mutex mutex;
  unsigned flags = 0;
  cudaFuncCache cache = cudaFuncCachePreferNone;
  cudaSharedMemConfig banks = cudaSharedMemBankSizeFourByte;
  std::map<cudaLimit, std::size_t> limits = {
      {cudaLimitStackSize, 1024},           {cudaLimitPrintfFifoSize, 8650752},
      {cudaLimitMallocHeapSize, 8388608},   {cudaLimitDevRuntimePendingLaunchCount, 2048},
      {cudaLimitMaxL2FetchGranularity, 64}, {cudaLimitPersistingL2CacheSize, 0},
  };
};

Settings& settings() {
  static auto& instance = *new Settings;
  return instance;
}

cudaError_t check_device(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

template <class T>
cudaError_t give(T* out, T value) {
  if (!out) return cudaErrorInvalidValue;
  *out = value;
  return cudaSuccess;
}

}  // namespace
}  // namespace r3::hostcuda

using namespace r3::hostcuda;

cudaError_t cudaGetDeviceCount(int* count) {
  return query([&] { return give(count, 1); });
}

cudaError_t cudaGetDevice(int* device) {
  return query([&] { return give(device, 0); });
}

cudaError_t cudaSetDevice(int device) {
  return query([&] { return check_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return query([&] { return check_device(device); });
}

cudaError_t cudaSetValidDevices(int* devices, int count) {
  return query([&] {
    if (count == 0) return cudaSuccess;
    if (!devices || count < 0) return cudaErrorInvalidValue;
    return std::all_of(devices, devices + count, [](int d) { return d == 0; }) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  return query([&] { return wanted ? give(device, 0) : cudaErrorInvalidValue; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return query([&] {
    const cudaError_t error = check_device(device);
    return error != cudaSuccess ? error : give(out, properties());
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return query([&] {
    if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
    if (attribute < cudaDevAttrMaxThreadsPerBlock || attribute >= cudaDevAttrMax) return cudaErrorInvalidValue;
    return give(value, figure(attribute));
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int device) {
  return query([&] {
    if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
    if (!out || size < static_cast<int>(sizeof pci_bus_id)) return cudaErrorInvalidValue;
    std::memcpy(out, pci_bus_id, sizeof pci_bus_id);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return query([&] {
    if (!device || !id) return cudaErrorInvalidValue;
    return std::string_view(id) == pci_bus_id ? give(device, 0) : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDriverGetVersion(int* out) {
  return query([&] { return give(out, version); });
}

cudaError_t cudaRuntimeGetVersion(int* out) {
  return query([&] { return give(out, version); });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] { return cudaSuccess; });
}

// Gives back everything that the application holds. Modules load afresh, so that their variables are as in the
// beginning.
cudaError_t cudaDeviceReset() {
  return query([] {
    if (cause_of_death() != cudaSuccess) {
      kill_context(cudaErrorDevicesUnavailable);
      return cudaSuccess;
    }
    forget_streams_and_events();
    registry().unload_modules();
    memory().release_all({Block::Kind::device, Block::Kind::pinned, Block::Kind::managed, Block::Kind::registered});
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return query([&] {
    if (flags & ~static_cast<unsigned>(cudaDeviceMask)) return cudaErrorInvalidValue;
    const std::lock_guard lock(settings().mutex);
    settings().flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return query([&] {
    const std::lock_guard lock(settings().mutex);
    return give(flags, settings().flags | cudaDeviceMapHost);
  });
}

cudaError_t cudaDeviceGetLimit(size_t* out, cudaLimit limit) {
  return call([&] {
    const std::lock_guard lock(settings().mutex);
    const auto found = settings().limits.find(limit);
    return found == settings().limits.end() ? cudaErrorUnsupportedLimit : give(out, found->second);
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return call([&] {
    const std::lock_guard lock(settings().mutex);
    const auto found = settings().limits.find(limit);
    if (found == settings().limits.end()) return cudaErrorUnsupportedLimit;
    found->second = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* out) {
  return call([&] {
    const std::lock_guard lock(settings().mutex);
    return give(out, settings().cache);
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return call([&] {
    const std::lock_guard lock(settings().mutex);
    settings().cache = config;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* out) {
  return call([&] {
    const std::lock_guard lock(settings().mutex);
    return give(out, settings().banks);
  });
}

// Compute capability 9.0 has banks of four bytes only, so the wish is heard and changes nothing.
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
  return call([] { return cudaSuccess; });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] {
    if (least) *least = 0;
    if (greatest) *greatest = greatest_stream_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  return call([] { return cudaSuccess; });
}

// One device: it has no peer.

cudaError_t cudaDeviceCanAccessPeer(int* out, int device, int peer) {
  return query([&] {
    if (device != 0 || peer != 0) return cudaErrorInvalidDevice;
    return give(out, 0);
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return call([&] { return peer == 0 ? cudaErrorPeerAccessUnsupported : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call([&] { return peer == 0 ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceGetP2PAttribute(int* out, cudaDeviceP2PAttr, int, int) {
  return query([&] { return out ? cudaErrorInvalidDevice : cudaErrorInvalidValue; });
}

cudaError_t cudaProfilerStart() {
  return call([] { return cudaSuccess; });
}

cudaError_t cudaProfilerStop() {
  return call([] { return cudaSuccess; });
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

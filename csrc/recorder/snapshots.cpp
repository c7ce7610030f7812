#include "recorder/snapshots.h"

#include <algorithm>
#include <string>

#include "recorder/capturing.h"
#include "recorder/wait.h"

namespace r3::recorder {
namespace {

std::uint64_t aligned(std::uint64_t offset) { return (offset + 255) / 256 * 256; }

std::size_t n_chunks(std::uint64_t size) { return (size + chunk_bytes - 1) / chunk_bytes; }

}  // namespace

Snapshots::Snapshots(Context& context, Writer& writer, Staging& staging, LaunchRecord record,
                     std::shared_ptr<const Image> image, Launches& launches)
    : context_(context), writer_(writer), staging_(staging) {
  std::uint64_t bytes = 0;
  for (RegionSnapshot& region : record.regions) {
    offsets_.push_back(bytes);
    bytes = aligned(bytes + region.size);
    region.prologue.resize(n_chunks(region.size));
    region.epilogue.resize(n_chunks(region.size));
  }
  if (bytes != 0) prologue_ = DeviceBuffer::if_spare(bytes);
  if (prologue_) {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      check(driver().cuMemcpyDtoDAsync(prologue_->address() + offsets_[i], record.regions[i].base,
                                       record.regions[i].size, context_.stream),
            "cuMemcpyDtoDAsync");
    }
    check(driver().cuStreamSynchronize(context_.stream), "a copy of the memory before the launch");
  }
  launch_ = writer_.begin(std::move(record), std::move(image), launches);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    RegionSnapshot& region = launch_->record.regions[i];
    const CUdeviceptr source = prologue_ ? prologue_->address() + offsets_[i] : region.base;
    pieces.push_back({source, region.size, region.prologue.data()});
  }
  const auto copied = staging_.copy({&context_, launch_, std::move(pieces), prologue_});
  if (!prologue_) copied.wait();
}

void Snapshots::after(CUresult code, std::uint64_t seconds) noexcept {
  try {
    if (code == CUDA_SUCCESS && capturing()) {
      launch_->refuse("a stream began to capture while it ran: waiting for its end would break the capture");
    } else if (const auto waited = code == CUDA_SUCCESS ? wait_for_device(seconds) : code; !waited) {
      launch_->refuse("it was not done in time: it may wait for the host, or for a later launch");
      // To free the copy would wait for the device, too.
      if (prologue_) [[maybe_unused]]
        const auto* kept = new std::shared_ptr(prologue_);
    } else if (*waited == CUDA_SUCCESS) {
      take_epilogue();
    } else {
      launch_->refuse("the launch failed: " + error_name(*waited));
    }
  } catch (const std::exception& error) {
    launch_->refuse(error.what());
  }
  writer_.close(launch_);
}

void Snapshots::take_epilogue() {
  std::vector<Piece> pieces;
  std::size_t chunk = 0;
  const std::vector<std::uint8_t> changed = changed_chunks();
  for (RegionSnapshot& region : launch_->record.regions) {
    const std::size_t n = n_chunks(region.size);
    for (std::size_t i = 0; i < n;) {
      if (!changed[chunk + i]) {
        ++i;
        continue;
      }
      const std::size_t first = i;
      while (i < n && changed[chunk + i]) ++i;
      pieces.push_back({region.base + first * chunk_bytes, std::min(i * chunk_bytes, region.size) - first * chunk_bytes,
                        &region.epilogue[first]});
    }
    chunk += n;
  }
  hand_over(std::move(pieces));
}

// A chunk that may not have changed may be said to have: its hash is the same then.
std::vector<std::uint8_t> Snapshots::changed_chunks() const {
  const auto& regions = launch_->record.regions;
  std::size_t n = 0;
  for (const RegionSnapshot& region : regions) n += n_chunks(region.size);
  std::vector<std::uint8_t> changed(n, 1);
  if (!prologue_) return changed;

  const DeviceBuffer flags(n);
  check(driver().cuMemsetD8Async(flags.address(), 0, n, context_.stream), "cuMemsetD8Async");
  std::size_t chunk = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    // Constant memory need not be readable by a kernel of ours: variables are taken as they are.
    if (regions[i].kind == "allocation") {
      context_.kernels.changed_chunks(regions[i].base, prologue_->address() + offsets_[i], regions[i].size, chunk_bytes,
                                      flags.address() + chunk, context_.stream);
    }
    chunk += n_chunks(regions[i].size);
  }
  check(driver().cuMemcpyDtoHAsync(changed.data(), flags.address(), n, context_.stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(context_.stream), "a comparison of the memory after the launch");
  chunk = 0;
  for (const RegionSnapshot& region : regions) {
    const std::size_t n = n_chunks(region.size);
    if (region.kind == "variable") std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(chunk), n, 1);
    if (region.size % 8 != 0) changed[chunk + n - 1] = 1;  // the last bytes are no word, and were not compared
    chunk += n;
  }
  return changed;
}

void Snapshots::hand_over(std::vector<Piece> pieces) {
  if (pieces.empty()) return;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes = aligned(bytes + piece.size);
  const auto epilogue = prologue_ ? DeviceBuffer::if_spare(bytes) : nullptr;
  if (epilogue) {
    CUdeviceptr at = epilogue->address();
    for (Piece& piece : pieces) {
      check(driver().cuMemcpyDtoDAsync(at, piece.source, piece.size, context_.stream), "cuMemcpyDtoDAsync");
      piece.source = at;
      at = aligned(at + piece.size);
    }
    check(driver().cuStreamSynchronize(context_.stream), "a copy of the memory after the launch");
  }
  const auto copied = staging_.copy({&context_, launch_, std::move(pieces), epilogue});
  if (!epilogue) copied.wait();
}

}  // namespace r3::recorder

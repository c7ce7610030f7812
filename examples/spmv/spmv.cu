// Sparse matrix times vector, in compressed sparse rows, read from a Matrix Market file.
//
//   spmv [rows] [file.mtx] [rounds]
//
// Writes a random matrix to the file first when it does not exist (by default a temporary one, removed at the end).
// The matrix is a struct of device pointers: one kernel takes it by value, the other through a pointer to device
// memory.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "../check.h"

constexpr int kBlock = 128;
constexpr int kWarp = 32;

struct CsrMatrix {
  int rows, columns;
  const int* row_starts;  // rows + 1 of them
  const int* column_indices;
  const float* values;
};

// One warp a row.
__global__ void spmv_by_warp(CsrMatrix matrix, const float* x, float* y) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= matrix.rows) return;
  float sum = 0.0f;
  for (int i = matrix.row_starts[row] + lane; i < matrix.row_starts[row + 1]; i += kWarp) {
    sum += matrix.values[i] * x[matrix.column_indices[i]];
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (lane == 0) y[row] = sum;
}

// One thread a row.
__global__ void spmv_by_thread(const CsrMatrix* matrix, const float* x, float* y) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= matrix->rows) return;
  float sum = 0.0f;
  for (int i = matrix->row_starts[row]; i < matrix->row_starts[row + 1]; ++i) {
    sum += matrix->values[i] * x[matrix->column_indices[i]];
  }
  y[row] = sum;
}

struct HostMatrix {
  int rows = 0, columns = 0;
  std::vector<int> row_starts, column_indices;
  std::vector<float> values;
};

// Rows of very different length: most are short, a few are long.
void write_matrix_market(const std::filesystem::path& path, int rows) {
  std::mt19937 random(1);
  std::ostringstream entries;
  std::size_t count = 0;
  for (int row = 0; row < rows; ++row) {
    const int length = std::min(rows, row % 16 == 0 ? 160 : 8 + static_cast<int>(random() % 24));
    for (int k = 0; k < length; ++k, ++count) {
      const int column = k % 4 == 0 ? static_cast<int>(random() % rows) : (row + k) % rows;
      const float value = (static_cast<float>(random() % 2000) / 1000.0f - 1.0f) / static_cast<float>(length);
      entries << row + 1 << ' ' << column + 1 << ' ' << value << '\n';
    }
  }
  std::ofstream file(path);
  file << "%%MatrixMarket matrix coordinate real general\n% written by the spmv example\n"
       << rows << ' ' << rows << ' ' << count << '\n'
       << entries.str();
  if (!file.flush()) {
    std::fprintf(stderr, "spmv: cannot write %s\n", path.c_str());
    std::exit(1);
  }
}

[[noreturn]] void malformed(const std::filesystem::path& path, const char* what) {
  std::fprintf(stderr, "spmv: %s: %s; give a Matrix Market file \"matrix coordinate real general|symmetric\"\n",
               path.c_str(), what);
  std::exit(1);
}

HostMatrix read_matrix_market(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line, banner, object, format, field, symmetry;
  if (!std::getline(file, line)) malformed(path, "cannot be read");
  std::istringstream(line) >> banner >> object >> format >> field >> symmetry;
  if (banner != "%%MatrixMarket" || object != "matrix" || format != "coordinate" || field != "real") {
    malformed(path, "unknown header");
  }
  while (std::getline(file, line) && (line.empty() || line[0] == '%')) continue;
  HostMatrix matrix;
  std::size_t count = 0;
  if (!(std::istringstream(line) >> matrix.rows >> matrix.columns >> count)) malformed(path, "no size line");

  struct Entry {
    int row, column;
    float value;
  };
  std::vector<Entry> entries;
  entries.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Entry entry{};
    if (!(file >> entry.row >> entry.column >> entry.value)) malformed(path, "fewer entries than promised");
    --entry.row, --entry.column;
    if (entry.row < 0 || entry.row >= matrix.rows || entry.column < 0 || entry.column >= matrix.columns) {
      malformed(path, "an entry outside the matrix");
    }
    entries.push_back(entry);
    if (symmetry == "symmetric" && entry.row != entry.column) {
      entries.push_back({entry.column, entry.row, entry.value});
    }
  }
  matrix.row_starts.assign(matrix.rows + 1, 0);
  for (const Entry& entry : entries) ++matrix.row_starts[entry.row + 1];
  for (int row = 0; row < matrix.rows; ++row) matrix.row_starts[row + 1] += matrix.row_starts[row];
  matrix.column_indices.resize(entries.size());
  matrix.values.resize(entries.size());
  std::vector<int> next = matrix.row_starts;
  for (const Entry& entry : entries) {
    const int i = next[entry.row]++;
    matrix.column_indices[i] = entry.column;
    matrix.values[i] = entry.value;
  }
  return matrix;
}

std::vector<double> reference(const HostMatrix& matrix, const std::vector<float>& x) {
  std::vector<double> y(matrix.rows, 0.0);
  for (int row = 0; row < matrix.rows; ++row) {
    for (int i = matrix.row_starts[row]; i < matrix.row_starts[row + 1]; ++i) {
      y[row] += static_cast<double>(matrix.values[i]) * x[matrix.column_indices[i]];
    }
  }
  return y;
}

int main(int argc, char** argv) {
  const int rows = example::argument(argc, argv, 1, 8000);
  const int rounds = example::argument(argc, argv, 3, 1);
  const bool temporary = argc < 3;
  const std::filesystem::path path =
      temporary ? std::filesystem::temp_directory_path() / ("spmv-" + std::to_string(std::random_device()()) + ".mtx")
                : std::filesystem::path(argv[2]);
  if (!std::filesystem::exists(path)) write_matrix_market(path, rows);
  const HostMatrix host = read_matrix_market(path);
  if (temporary) std::filesystem::remove(path);

  std::vector<float> x(host.columns);
  for (int i = 0; i < host.columns; ++i) x[i] = std::sin(0.01f * static_cast<float>(i)) + 0.5f;

  const example::DeviceArray<int> row_starts(host.row_starts), column_indices(host.column_indices);
  const example::DeviceArray<float> values(host.values), device_x(x);
  const CsrMatrix matrix{host.rows, host.columns, row_starts.data(), column_indices.data(), values.data()};
  const example::DeviceArray<CsrMatrix> device_matrix(std::vector<CsrMatrix>{matrix});
  example::DeviceArray<float> y_by_warp(host.rows), y_by_thread(host.rows);

  const int rows_per_block = kBlock / kWarp;
  for (int round = 0; round < rounds; ++round) {
    spmv_by_warp<<<(host.rows + rows_per_block - 1) / rows_per_block, kBlock>>>(matrix, device_x.data(),
                                                                                y_by_warp.data());
    CHECK(cudaGetLastError());
    spmv_by_thread<<<(host.rows + kBlock - 1) / kBlock, kBlock>>>(device_matrix.data(), device_x.data(),
                                                                  y_by_thread.data());
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());

  const std::vector<double> expected = reference(host, x);
  example::Verdict verdict("spmv");
  verdict.expect("one warp a row", example::relative_error(y_by_warp.to_host(), expected), 1e-5);
  verdict.expect("one thread a row", example::relative_error(y_by_thread.to_host(), expected), 1e-5);
  return verdict.report();
}

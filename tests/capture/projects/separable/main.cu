void lookup(float* data);

static __global__ void clear_kernel(float* data) { data[threadIdx.x] = 0; }

int main(int argc, char**) {
  if (argc > 1) {
    clear_kernel<<<1, 32>>>(nullptr);
    lookup(nullptr);
  }
}

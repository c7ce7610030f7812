__device__ float entry(int i);

__global__ void lookup_kernel(float* data) { data[threadIdx.x] = entry(threadIdx.x); }

void lookup(float* data) { lookup_kernel<<<1, 32>>>(data); }

#include "factor.h"

__global__ void scale_kernel(float* data) { data[threadIdx.x] *= FACTOR; }

void scale(float* data) { scale_kernel<<<1, 32>>>(data); }

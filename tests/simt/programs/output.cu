// printf from the device, in an order that every device gives: one thread at a time.
#include "report.h"

__global__ void say(int i, float x, const char* unused) {
  printf("%d|%5d|%-5d|%05d|%+d|%x|%#X|%o\n", i, i, i, i, i, i, i, i);
  printf("%f|%.3f|%10.2e|%g|%5.1f%%\n", x, x, x, x, x);
  printf("%s|%10s|%c|%lld|%llu|%lx|%zu\n", "text", "right", 'c', -5000000000ll, 18000000000000000000ull, 0x123456789al,
         (size_t)77);
  printf("%*d|%.*f\n", 7, i, 2, x);
  printf("plain\n");
}

int main() {
  say<<<1, 1>>>(42, 3.14159f, nullptr);
  finish("say");
  say<<<1, 1>>>(-7, -1e-5f, nullptr);
  finish("say");
}

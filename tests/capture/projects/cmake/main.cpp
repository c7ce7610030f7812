void scale(float* data);
void shift(float* data);

int main(int argc, char**) {
  if (argc > 1) {
    scale(nullptr);
    shift(nullptr);
  }
}

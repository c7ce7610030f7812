// Deliberately empty: clang's CUDA wrapper header includes this cuRAND header, which a toolkit without cuRAND lacks.

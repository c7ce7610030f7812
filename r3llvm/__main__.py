"""`python -m r3llvm`."""

from r3llvm.cli import main

if __name__ == "__main__":
    main()

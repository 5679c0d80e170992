"""What tests share: matrices of cells, specs and kernels made from them, caches, mutants, and what watches kernels."""

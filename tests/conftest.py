"""Without a GPU, kernels run in Triton's interpreter: that has to be said before anything imports `triton`."""

import importlib.util

from tqgen.verify import interpreter

if importlib.util.find_spec("torch") and importlib.util.find_spec("triton"):
    import torch

    if interpreter.is_chosen() or not torch.cuda.is_available():
        interpreter.choose()

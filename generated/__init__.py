"""The modules of the shipped specs, as `tqgen build` writes them; each stands alone and needs torch and triton only."""

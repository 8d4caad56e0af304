"""Every test computes on one thread, as every run does: more threads round differently."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import torch  # noqa: E402

torch.set_num_threads(1)
